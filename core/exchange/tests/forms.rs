//! What is written is read back: every form, over recipes that people use.

use plimsoll_exchange::{Form, Source, read, write};
use plimsoll_scenario::{Scenario, at, levers};
use serde_json::{Value, json};

/// Recipes for a decoder of 8 billion parameters, as tables of `[training]`.
fn recipes() -> Vec<Value> {
    vec![
        json!({}),
        json!({ "precision": "bf16", "optimizer_impl": "fused", "checkpointing": "full", "accumulation": 4 }),
        json!({ "precision": "fp32", "optimizer": "sgd", "clip_grad_norm": false }),
        json!({ "precision": "fp16-amp", "attention": "eager" }),
        json!({ "lora": { "rank": 16 }, "base_dtype": "bfloat16", "checkpointing": "full" }),
        json!({ "lora": { "rank": 64, "targets": ["q_proj", "v_proj"], "dropout": 0.05, "dora": true }, "optimizer_impl": "fused" }),
        json!({ "lora": {}, "quantization": "nf4-double", "checkpointing": "full", "optimizer": "paged-adamw-8bit", "accumulation": 16 }),
        json!({ "lora": { "rank": 8 }, "quantization": "nf4", "loss_impl": "fused-linear", "optimizer": "adamw-8bit" }),
        json!({ "lora": { "modules_to_save": ["lm_head"] }, "quantization": "int8", "optimizer": "paged-adamw" }),
        json!({ "precision": "bf16", "loss_impl": "chunked", "checkpointing": "full", "optimizer_impl": "fused", "clip_grad_norm": false }),
        json!({ "precision": "bf16", "lora": { "rank": 8 }, "loss_impl": "chunked", "optimizer_impl": "fused", "clip_grad_norm": false }),
        json!({ "checkpointing": "selective", "lora": { "rank": 8 }, "quantization": "nf4" }),
        json!({ "checkpointing": "full", "checkpoint_every": 2 }),
        json!({ "precision": "bf16", "optimizer": "paged-adamw-8bit", "optimizer_in_backward": true, "checkpointing": "full" }),
        json!({ "optimizer_in_backward": true, "optimizer_impl": "fused", "activation_offloading": "save-on-cpu" }),
        json!({ "checkpointing": "full", "lora": { "rank": 8 }, "activation_offloading": "offload-activations" }),
        json!({ "checkpointing": "full", "lora": { "rank": 8 }, "base_dtype": "bfloat16", "activation_offloading": "offload-activations" }),
        json!({ "precision": "bf16", "loss_impl": "chunked", "optimizer_impl": "fused", "clip_grad_norm": false,
            "checkpointing": "full", "activation_offloading": "offload-activations" }),
        json!({ "checkpointing": "full", "loss_impl": "fused-lm-head", "activation_offloading": "offload-activations", "accumulation": 2 }),
        json!({ "trainer": "transformers", "loss_impl": "fused-lm-head", "lora": { "autocast_adapter_dtype": false }, "quantization": "nf4", "prepare_kbit": false }),
        json!({ "trainer": "transformers", "precision": "bf16" }),
        json!({ "checkpointing": "reentrant", "lora": { "rank": 8 }, "base_dtype": "bfloat16" }),
        json!({ "lora": { "rank": 8 }, "quantization": "nf4", "loss_impl": "fused-linear", "kernels": "liger" }),
        json!({ "kernels": "liger", "checkpointing": "full" }),
        json!({ "trainer": "transformers", "loss_impl": "fused-linear", "kernels": "liger" }),
        json!({ "kernels": "liger", "loss_impl": "fused-lm-head" }),
        json!({ "checkpointing": "reentrant", "activation_offloading": "checkpoint-inputs", "lora": { "rank": 8 }, "base_dtype": "bfloat16" }),
    ]
}

fn scenario(training: &Value) -> Scenario {
    let value =
        json!({ "model": { "catalog": "llama-3.1-8b" }, "input": { "batch": 2, "seq": 2048 }, "training": training });
    Scenario::from_value(&value).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// Which recipes each form takes; what it takes comes back as it was. Of the twenty-seven, torchtune knows no autocast, Axolotl no
/// float32 weights that are trained under it, and no loop of ours has another loss than the model's, be it Liger's. LLaMA-Factory has all of Liger or nothing. A function that selects
/// what a checkpoint keeps is written where a model is made by hand alone, an offloading where a tool has it, and no form chooses layers.
#[test]
fn every_form_reads_back_what_it_says() {
    let mut taken = Vec::new();
    for form in [Form::PyTorch, Form::Trainer, Form::Axolotl, Form::LlamaFactory, Form::Torchtune] {
        let mut count = 0;
        for recipe in recipes() {
            let scenario = scenario(&recipe);
            let text = match write(&scenario, form) {
                Ok(text) => text,
                Err(error) => {
                    assert!(error.key.starts_with("training.") || error.key.starts_with("model"), "{form}: {error}");
                    println!("{form} {recipe}: {error}");
                    continue;
                }
            };
            count += 1;
            let source = Source { name: form.file().to_owned(), text: text.clone() };
            let back = read(&[source], None).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let back =
                Scenario::from_value(&Value::Object(back.scenario)).unwrap_or_else(|error| panic!("{error}\n{text}"));
            for lever in
                levers().filter(|lever| ["model.", "input.", "training."].iter().any(|s| lever.path.starts_with(s)))
            {
                if ![at::input::attention_mask, at::training::trainer].contains(&lever.path) {
                    assert_eq!(lever.get(&back), lever.get(&scenario), "{form} {}\n{text}", lever.path);
                }
            }
        }
        taken.push((form.as_str(), count));
    }
    assert_eq!(taken, [("pytorch", 19), ("trainer", 17), ("axolotl", 13), ("llama-factory", 12), ("torchtune", 6)]);
}

/// Of GPT-OSS Liger has norms and positions, of Qwen3.5 no positions, of Gemma another activation: nothing else is asked for.
#[test]
fn what_liger_has_of_a_model_comes_back() {
    for (model, key) in [("gpt-oss-20b", ""), ("gemma-3-1b", "\"geglu\": False"), ("qwen3-8b", "\"swiglu\": False")] {
        for (kernels, loss) in [("liger", "full"), ("liger", "fused-linear"), ("default", "fused-linear")] {
            let training =
                json!({ "lora": { "rank": 8 }, "base_dtype": "bfloat16", "kernels": kernels, "loss_impl": loss });
            let value = json!({ "model": { "catalog": model }, "input": { "seq": 512 }, "training": training });
            let scenario = Scenario::from_value(&value).unwrap_or_else(|error| panic!("{error}: {value}"));
            for form in [Form::Trainer, Form::Axolotl] {
                let text = write(&scenario, form).unwrap_or_else(|error| panic!("{form} {value}: {error}"));
                assert!(form != Form::Trainer || kernels == "liger" || text.contains(key), "{text}");
                assert_eq!(
                    text.contains("liger_glu_activation"),
                    form == Form::Axolotl && kernels == "liger" && !key.is_empty()
                );
            }
        }
    }
}

#[test]
fn several_cards() {
    for (strategy, more, forms) in [
        ("ddp", json!({}), &[Form::Accelerate][..]),
        ("zero-0", json!({}), &[Form::DeepSpeed][..]),
        ("fsdp2", json!({ "reshard_after_forward": "true" }), &[Form::Accelerate][..]),
        (
            "fsdp1",
            json!({ "sharding_strategy": "shard-grad-op", "backward_prefetch": "post" }),
            &[Form::Accelerate][..],
        ),
        ("zero-2", json!({}), &[Form::DeepSpeed][..]),
    ] {
        let value = json!({
            "model": { "catalog": "llama-3.1-8b" }, "training": { "precision": "fp32" },
            "parallel": { "gpus": 8, "strategy": strategy, "fsdp": more },
        });
        let scenario = Scenario::from_value_to_measure(&value).unwrap();
        for form in forms {
            write(&scenario, *form).unwrap_or_else(|error| panic!("{form}: {error}"));
        }
        // Nothing in the recipe's own forms says how many cards there are.
        assert_eq!(
            write(&scenario, Form::Axolotl).unwrap_err().key,
            at::parallel::strategy.replace("strategy", "gpus")
        );
    }
}

#[test]
fn what_a_form_cannot_say_is_named() {
    for (training, form, key) in [
        (json!({ "ema": true }), Form::Trainer, at::training::ema),
        (json!({ "keep_outputs": true }), Form::PyTorch, at::training::keep_outputs),
        (json!({ "optimizer": "muon" }), Form::Axolotl, at::training::optimizer),
        (json!({ "precision": "bf16-amp" }), Form::Torchtune, at::training::precision),
        (json!({ "mode": "inference" }), Form::PyTorch, at::training::mode),
    ] {
        let error = write(&scenario(&training), form).unwrap_err();
        assert_eq!(error.key, key, "{form}: {error}");
    }
    let mlp = Scenario::from_value(&json!({ "model": { "family": "mlp" } })).unwrap();
    for form in Form::ALL {
        match form {
            Form::Toml | Form::Json | Form::Command => assert!(write(&mlp, *form).is_ok()),
            Form::Accelerate | Form::DeepSpeed => {}
            _ => assert!(write(&mlp, *form).is_err(), "{form}"),
        }
    }
}

#[test]
fn our_own_forms_say_everything() {
    for recipe in recipes() {
        let scenario = scenario(&recipe);
        let text = write(&scenario, Form::Json).unwrap();
        assert_eq!(Scenario::from_json(&text).unwrap(), scenario);
        assert!(write(&scenario, Form::Command).unwrap().starts_with("plimsoll estimate --model llama-3.1-8b"));
    }
}
