//! What is accepted, what is refused, and in which words.

use plimsoll_ground::Bytes;
use serde_json::{Value, json};

use super::*;

fn refused(value: &Value) -> String {
    Scenario::from_value(value).expect_err(&value.to_string()).to_string()
}

/// `value` at `section.key` of an otherwise good scenario.
fn with(section: &str, key: &str, value: Value) -> Value {
    let mut scenario = json!({ "model": { "catalog": "llama-3.2-1b" } });
    scenario[section][key] = value;
    scenario
}

#[test]
fn everything_but_the_model_has_a_default() {
    let scenario = Scenario::from_json(r#"{"model": {"catalog": "llama-3.2-1b"}}"#).unwrap();
    assert_eq!(scenario, Scenario::default());
    let expected = json!({
        "schema": 1,
        "model": { "catalog": "llama-3.2-1b", "task": "causal-lm" },
        "input": { "batch": 1, "seq": 1024, "attention_mask": "none" },
        "training": {
            "mode": "train", "precision": "bf16-amp", "optimizer": "adamw", "optimizer_impl": "foreach",
            "accumulation": 1, "checkpointing": "none", "attention": "sdpa", "clip_grad_norm": true,
            "zero_grad": "set-to-none", "zero_grad_at": "after-step", "keep_outputs": false,
        },
        "device": { "gpu": "rtx-5070-ti-laptop", "workspaces": true },
        "software": { "torch": "2.11", "transformers": "5.17" },
    });
    // As text: the order of the keys is part of the format.
    assert_eq!(scenario.to_value().to_string(), expected.to_string());
}

#[test]
fn every_key_is_read() {
    let full = json!({
        "schema": 1,
        "model": { "hf": { "model_type": "gpt2", "n_inner": null, "anything": [1, { "x": 2 }] }, "task": "causal-lm" },
        "input": { "batch": 4, "seq": 512, "attention_mask": "padded" },
        "training": {
            "mode": "train", "precision": "fp16", "optimizer": "sgd", "optimizer_impl": "fused",
            "accumulation": 8, "checkpointing": "full", "attention": "eager", "clip_grad_norm": false,
            "zero_grad": "zero", "zero_grad_at": "before-backward", "keep_outputs": true,
            "lora": { "rank": 16, "targets": ["q_proj", "v_proj"], "dropout": 0.05 },
        },
        "device": { "gpu": "h200", "memory": "100 GiB", "load_line": "90.5 GiB", "workspaces": false },
        "software": { "torch": "2.11", "transformers": "5.17" },
    });
    let scenario = Scenario::from_value(&full).unwrap();
    assert_eq!(scenario.to_value().to_string(), full.to_string());
    assert_eq!(scenario.device.memory, Some(Bytes::from_gib(100)));
    assert_eq!(scenario.training.lora.unwrap().targets, LoraTargets::Names(vec!["q_proj".into(), "v_proj".into()]));
}

#[test]
fn a_family_has_all_its_keys() {
    let scenario = Scenario::from_value(&json!({ "model": { "family": "nbeats", "stacks": 3 } })).unwrap();
    assert_eq!(
        scenario.to_value()["model"].to_string(),
        r#"{"family":"nbeats","task":"forecasting","stacks":3,"layers":4,"width":512,"theta":32,"backcast":96,"horizon":24}"#
    );
    assert_eq!(scenario.input.seq, None);
    assert_eq!(scenario.to_value()["input"].get("seq"), None);
}

#[test]
fn the_sequence_follows_the_model() {
    let seq = |model: Value| Scenario::from_value(&json!({ "model": model })).unwrap().input.seq;
    assert_eq!(seq(json!({ "hf": { "model_type": "gpt2", "n_positions": 512 } })), Some(512));
    assert_eq!(seq(json!({ "hf": { "model_type": "llama", "max_position_embeddings": 256 } })), Some(256));
    assert_eq!(seq(json!({ "hf": { "model_type": "llama" } })), Some(1024));
    assert_eq!(seq(json!({ "hf": { "model_type": "llama", "max_position_embeddings": "many" } })), Some(1024));
    assert_eq!(seq(json!({ "hf": { "model_type": "llama", "max_position_embeddings": 0 } })), Some(1));
    assert_eq!(seq(json!({ "family": "nanogpt", "block_size": 64 })), Some(64));
}

#[test]
fn positions_that_are_parameters_are_a_limit() {
    let asked = json!({ "model": { "catalog": "gpt2" }, "input": { "seq": 1025 } });
    assert_eq!(
        refused(&asked),
        "input.seq: 1025 tokens are more than the 1024 positions this model has parameters for; give at most 1024"
    );
    // Rotary positions are computed: longer runs.
    let asked = json!({ "model": { "catalog": "tinyllama-1.1b" }, "input": { "seq": 4096 } });
    assert!(Scenario::from_value(&asked).is_ok());
}

#[test]
fn unknown_keys_are_named_with_the_nearest() {
    assert_eq!(refused(&json!({ "modle": {} })), r#"modle: unknown key; did you mean "model"?"#);
    assert_eq!(refused(&with("input", "bacth", json!(4))), r#"input.bacth: unknown key; did you mean "batch"?"#);
    assert_eq!(
        refused(&with("input", "precision", json!(4))),
        "input.precision: unknown key; it belongs in [training]"
    );
    assert_eq!(
        refused(&json!({ "batch": 4, "model": { "family": "mlp" } })),
        "batch: unknown key; it belongs in [input]"
    );
    assert_eq!(
        refused(&with("training", "lora", json!({ "alpha": 4 }))),
        "training.lora.alpha: unknown key; known here: rank, targets, dropout, dora, autocast_adapter_dtype, modules_to_save"
    );
    assert!(refused(&json!({ "model": { "family": "mlp", "stacks": 4 } })).starts_with("model.stacks: unknown key;"));
    assert!(refused(&with("device", "\u{1b}[31m", json!(1))).starts_with(r#"device."\u{1b}[31m": unknown key"#));
    assert!(refused(&with("device", &"x".repeat(10_000), json!(1))).len() < 300);
}

#[test]
fn numbers_out_of_range() {
    let batch = |text: &str| {
        Scenario::from_json(&format!(r#"{{"model": {{"catalog": "gpt2"}}, "input": {{"batch": {text}}}}}"#))
            .expect_err(text)
            .to_string()
    };
    let hint = "; give a whole number from 1 to 16777216";
    assert_eq!(batch("0"), format!("input.batch: 0 is too small{hint}"));
    assert_eq!(batch("-4"), format!("input.batch: -4 is negative{hint}"));
    assert_eq!(batch("1.5"), format!("input.batch: 1.5 is not a whole number{hint}"));
    assert_eq!(batch("4.0"), format!("input.batch: 4.0 is not a whole number{hint}"));
    assert_eq!(batch("16777217"), format!("input.batch: 16777217 is too large{hint}"));
    assert_eq!(batch("18446744073709551616"), format!("input.batch: 1.8446744073709552e+19 is too large{hint}"));
    assert_eq!(batch("1e300"), format!("input.batch: 1e+300 is too large{hint}"));
    assert_eq!(batch("-1e300"), format!("input.batch: -1e+300 is negative{hint}"));
    assert_eq!(batch("\"4\""), format!("input.batch: expected a whole number, found the text \"4\"{hint}"));
    assert_eq!(batch("null"), format!("input.batch: expected a whole number, found nothing (null){hint}"));
    assert_eq!(batch("[4]"), format!("input.batch: expected a whole number, found a list{hint}"));
    assert!(batch("NaN").starts_with("scenario: not valid JSON"));
    assert!(batch("1e999").starts_with("scenario: not valid JSON: number out of range"));
    let both = json!({ "model": { "catalog": "llama-3.2-1b" }, "input": { "batch": 1 << 24, "seq": 1 << 24 } });
    assert!(refused(&both).contains("more than 4294967296 tokens"));
    assert!(refused(&with("training", "accumulation", json!(1 << 21))).contains("from 1 to 1048576"));
    for key in ["d_in", "hidden", "layers", "d_out"] {
        for value in [json!(0), json!(-1), json!(u64::MAX), json!(0.5), json!("x")] {
            let error = refused(&json!({ "model": { "family": "mlp", key: value } }));
            assert!(error.starts_with(&format!("model.{key}: ")), "{error}");
        }
    }
}

#[test]
fn wrong_types_say_what_was_found() {
    assert_eq!(
        refused(&with("training", "precision", json!(16))),
        r#"training.precision: expected text, found the number 16; write it in quotes, as "fp32""#
    );
    assert_eq!(
        refused(&with("training", "clip_grad_norm", json!(1.0))),
        "training.clip_grad_norm: expected true or false, found the number 1.0; write true or false, without quotes"
    );
    assert!(refused(&json!([])).starts_with("scenario: expected a table, found a list"));
    assert!(refused(&json!({ "model": "gpt2" })).starts_with("model: expected a table, found the text \"gpt2\""));
    assert!(refused(&with("training", "lora", json!(true))).starts_with("training.lora: expected a table, found true"));
    assert!(refused(&with("software", "torch", json!(2.11))).contains(r#"write it in quotes, as "2.11""#));
}

#[test]
fn words_outside_a_vocabulary() {
    assert_eq!(
        refused(&with("training", "optimizer", json!("shampoo"))),
        "training.optimizer: \"shampoo\" is not one of its values; \
         use one of sgd, sgd-momentum, adam, adamw, adafactor, adafactor-torch, adagrad, rmsprop, rmsprop-momentum, \
         rmsprop-centered, rmsprop-centered-momentum, nadam, adamax, adamw-8bit, paged-adamw, paged-adamw-8bit, lion, muon"
    );
    assert_eq!(
        refused(&with("training", "precision", json!("bf16-apm"))),
        "training.precision: \"bf16-apm\" is not one of its values; did you mean \"bf16-amp\"; \
         use one of fp32, fp16-amp, bf16-amp, fp16, bf16"
    );
}

#[test]
fn exactly_one_model() {
    assert!(refused(&json!({})).starts_with("model: no model is named; give exactly one of catalog"));
    assert!(refused(&json!({ "model": {} })).starts_with("model: no model is named"));
    let two = json!({ "model": { "catalog": "gpt2", "family": "mlp" } });
    assert!(refused(&two).starts_with("model: catalog and family are given together"));
    let with_null = json!({ "model": { "catalog": "gpt2", "family": null, "hf": null } });
    assert!(Scenario::from_value(&with_null).is_ok());
}

/// Each parameter is stepped on its own, within backward: what stands between backward and a step has no place.
#[test]
fn what_cannot_stand_beside_a_step_in_backward_is_named() {
    let with = |more: Value| {
        let mut training = json!({ "optimizer_in_backward": true });
        if let (Value::Object(training), Value::Object(more)) = (&mut training, more) {
            training.extend(more);
        }
        Scenario::from_value(&json!({ "model": { "catalog": "gpt2" }, "training": training }))
    };
    let plain = with(json!({})).unwrap();
    assert!(!plain.training.clip_grad_norm, "there is nothing to clip");
    assert!(plain.check().is_ok() && plain.estimated().is_ok());
    for more in [
        json!({ "clip_grad_norm": true }),
        json!({ "accumulation": 2 }),
        json!({ "precision": "fp16-amp" }),
        json!({ "zero_grad": "zero" }),
        json!({ "zero_grad_at": "before-forward" }),
        json!({ "trainer": "transformers" }),
    ] {
        assert_eq!(with(more.clone()).unwrap_err().key, "training.optimizer_in_backward", "{more}");
    }
    let more = |key: &str, value: Value| {
        let mut whole = plain.to_value();
        whole[key] = value;
        Scenario::from_value(&whole).unwrap_err().key
    };
    assert_eq!(more("parallel", json!({ "gpus": 2 })), "training.optimizer_in_backward");
    assert_eq!(more("software", json!({ "torch": "2.0" })), "training.optimizer_in_backward");
}

#[test]
fn what_is_not_estimated_is_refused_by_name() {
    assert_eq!(
        refused(&with("model", "task", json!("masked-lm"))),
        "model.task: masked-lm is not estimated for llama yet; use causal-lm or sequence-classification, or leave task out"
    );
    assert_eq!(
        refused(&json!({ "model": { "family": "alexnet" } })),
        "model.family: family \"alexnet\" is not supported; supported: mlp, nanogpt, nbeats, gat, resnet, convnext, vgg, mobilenetv2, mobilenetv3, mnasnet, regnet, efficientnet, densenet, inception, swin"
    );
    let unknown = refused(&json!({ "model": { "hf": { "model_type": "rwkv" } } }));
    assert!(unknown.starts_with("model.hf.model_type: model_type \"rwkv\" is not supported yet; "), "{unknown}");
    assert!(unknown.contains("`plimsoll trace` records the model itself"), "{unknown}");
    let next = refused(&json!({ "model": { "hf": { "model_type": "qwen3_omni_moe", "num_experts": 512 } } }));
    assert!(next.contains("the nearest that is known is qwen3_moe: "), "{next}");
    let parts = json!({ "model_type": "gemma3", "text_config": { "model_type": "gemma3_text" } });
    let parts = refused(&json!({ "model": { "hf": parts } }));
    assert!(parts.contains("give its text_config, whose model_type is gemma3_text"), "{parts}");
    assert_eq!(
        refused(&with("input", "image", json!(224))),
        "input.image: it is the side of an image, which only vision models take; llama takes tokens; leave image out"
    );
    assert!(refused(&with("input", "target_seq", json!(64))).contains("only encoder-decoder models have"));
    let mlp = |key: &str, value: Value| json!({ "model": { "family": "mlp" }, "input": { key: value } });
    assert_eq!(Scenario::from_value(&mlp("seq", json!(64))).map(|s| s.input.seq), Ok(None));
    assert!(refused(&mlp("seq", json!(-1))).starts_with("input.seq: "));
    assert!(refused(&mlp("attention_mask", json!("ones"))).contains("mlp takes no attention mask"));
    assert!(Scenario::from_value(&mlp("attention_mask", json!("none"))).is_ok());
    for text in ["", "2", "two", "2.x", "2..1", "-2.1", "20000.1"] {
        assert!(refused(&with("software", "torch", json!(text))).starts_with("software.torch: "), "{text}");
    }
}

/// Any version is taken; what a recipe leaves open is what that version did.
#[test]
fn older_versions_have_their_own_defaults() {
    let of = |torch: &str, training: Value| {
        let value = json!({
            "model": { "catalog": "gpt2" }, "training": training, "software": { "torch": torch, "transformers": "4.45.2" }
        });
        let scenario = Scenario::from_value(&value).unwrap_or_else(|e| panic!("{e}: {value}"));
        assert_eq!(Scenario::from_value(&scenario.to_value()), Ok(scenario.clone()), "{value}");
        let link = Link::encode(&scenario);
        assert_eq!(Link::decode_strict(&link), Ok(scenario.clone()), "{link}");
        (scenario, link)
    };
    let (old, link) = of("1.13.1", json!({}));
    assert_eq!(link, "?model=gpt2&torch=1.13&transformers=4.45");
    let training = &old.training;
    assert_eq!((training.zero_grad, training.optimizer_impl), (ZeroGrad::Zero, OptimizerImpl::ForLoop));
    assert_eq!(training.attention, Attention::Eager);
    let (told, link) = of("1.13", json!({ "zero_grad": "set-to-none", "optimizer_impl": "foreach" }));
    assert_eq!(link, "?model=gpt2&impl=foreach&zero_grad=set-to-none&torch=1.13&transformers=4.45");
    assert_eq!((told.training.zero_grad, told.training.optimizer_impl), (ZeroGrad::SetToNone, OptimizerImpl::Foreach));
    assert_eq!(of("2.0", json!({})).0.training, Scenario::default().training);
    assert_eq!(of("2.99", json!({})).1, "?model=gpt2&torch=2.99&transformers=4.45", "as it was written");
    let sdpa =
        json!({ "model": { "catalog": "gpt2" }, "training": { "attention": "sdpa" }, "software": { "torch": "1.13" } });
    assert_eq!(
        refused(&sdpa),
        "training.attention: PyTorch 1.13 has no scaled_dot_product_attention; use eager, or torch 2.0 or later"
    );
}

#[test]
fn versions_may_be_written_in_full() {
    let scenario = Scenario::from_value(&with("software", "torch", json!("2.11.0+cu128"))).unwrap();
    assert_eq!(scenario.software.torch, Version::new(2, 11));
}

#[test]
fn adafactor_has_one_implementation() {
    let scenario = Scenario::from_value(&with("training", "optimizer", json!("adafactor"))).unwrap();
    assert_eq!(scenario.training.optimizer_impl, OptimizerImpl::ForLoop);
    let mut fused = with("training", "optimizer", json!("adafactor"));
    fused["training"]["optimizer_impl"] = json!("fused");
    assert!(refused(&fused).starts_with("training.optimizer_impl: adafactor has no fused implementation"));
}

#[test]
fn configs_are_taken_as_they_come_but_need_a_type() {
    let hf = |hf: Value| json!({ "model": { "hf": hf } });
    assert!(refused(&hf(json!({ "hidden_size": 64 }))).starts_with("model.hf.model_type: it is missing"));
    assert!(refused(&hf(json!({ "model_type": 4 }))).starts_with("model.hf.model_type: expected text"));
    assert!(refused(&hf(json!("{\"model_type\""))).starts_with("model.hf: not valid JSON"));
    assert!(refused(&hf(json!({ "model_type": "llama", "id2label": "x".repeat(50_000) }))).contains("long lists"));
    let text = Scenario::from_value(&hf(json!("{\"model_type\": \"llama\", \"rope_scaling\": null}"))).unwrap();
    let table = Scenario::from_value(&hf(json!({ "model_type": "llama", "rope_scaling": null }))).unwrap();
    assert_eq!(text, table);
    assert!(refused(&json!({ "model_type": "llama", "hidden_size": 64 })).contains("--hf-config"));
}

#[test]
fn ids_that_are_in_no_catalog() {
    assert_eq!(
        refused(&with("device", "gpu", json!("rtx-5070-ti-laptp"))),
        "device.gpu: no GPU \"rtx-5070-ti-laptp\" in the catalog; \
         the nearest are rtx-5070-ti-laptop, rtx-5070-ti, rtx-3070-ti-laptop"
    );
    assert!(refused(&json!({ "model": { "catalog": "meta-llama/Llama-3.2-1B" } })).contains("llama-3.2-1b"));
    assert!(refused(&with("device", "gpu", json!("quantum abacus"))).contains("ids read like"));
}

#[test]
fn memory_with_units() {
    let read = |value: Value| Scenario::from_value(&with("device", "memory", value)).map(|s| s.device.memory);
    assert_eq!(read(json!("11.6 GiB")), Ok(Some(Bytes::new(12_455_405_158))));
    assert_eq!(read(json!("11 GB")), Ok(Some(Bytes::new(11_000_000_000))));
    assert_eq!(read(json!(12_884_901_888_u64)), Ok(Some(Bytes::from_gib(12))));
    assert_eq!(read(json!(null)), Ok(None));
    let refused = |value: Value| read(value).unwrap_err().to_string();
    assert!(refused(json!(12)).contains("12 B is too little (a forgotten unit?)"));
    assert!(refused(json!("0 GiB")).contains("too little"));
    assert!(refused(json!(-1)).contains("-1 is not a whole number of bytes"));
    assert!(refused(json!(1.5)).contains("1.5 is not a whole number of bytes"));
    assert!(refused(json!("2000 TiB")).contains("is more than the"));
    assert!(refused(json!("much")).contains("\"much\" is not a size"));
    assert!(refused(json!(true)).contains("expected a size, found true"));
    let line = Scenario::from_value(&with("device", "load_line", json!("13 GiB"))).unwrap_err().to_string();
    assert!(line.starts_with("device.load_line: 13.00 GiB is above the"));
}

#[test]
fn adapters() {
    let read = |lora: Value| Scenario::from_value(&with("training", "lora", lora)).map(|s| s.training.lora);
    assert_eq!(read(json!({})), Ok(Some(Lora::default())));
    assert_eq!(read(json!(null)), Ok(None));
    let names = read(json!({ "targets": ["q_proj", "v_proj", "q_proj"] })).unwrap().unwrap().targets;
    assert_eq!(names, LoraTargets::Names(vec!["q_proj".into(), "v_proj".into()]));
    let refused = |lora: Value| read(lora).unwrap_err().to_string();
    assert!(refused(json!({ "rank": 0 })).starts_with("training.lora.rank: 0 is too small"));
    assert!(refused(json!({ "targets": [] })).starts_with("training.lora.targets: the list is empty"));
    assert!(refused(json!({ "targets": "q_proj" })).contains("found the text \"q_proj\""));
    assert!(refused(json!({ "targets": ["all-linear"] })).contains("\"all-linear\" is not a module name"));
    assert!(refused(json!({ "targets": [1] })).contains("found the number 1"));
    assert!(refused(json!({ "targets": vec!["x"; 65] })).contains("65 names are too many"));
    assert!(refused(json!({ "dropout": 1.0 })).contains("1 is not a probability"));
    assert!(refused(json!({ "dropout": -0.1 })).contains("-0.1 is not a probability"));
    assert!(refused(json!({ "dropout": "x" })).contains("expected a number"));
    let saved = read(json!({ "dora": true, "modules_to_save": ["lm_head", "lm_head"] })).unwrap().unwrap();
    assert_eq!((saved.dora, saved.modules_to_save), (true, vec!["lm_head".to_owned()]));
    assert!(refused(json!({ "modules_to_save": [] })).starts_with("training.lora.modules_to_save: the list is empty"));
}

/// A quantized base is frozen: without adapters there is nothing to train.
#[test]
fn quantized_weights_need_adapters() {
    let mut asked = with("training", "quantization", json!("nf4"));
    assert_eq!(
        refused(&asked),
        "training.quantization: quantized weights are not trained themselves; add training.lora, or leave quantization out"
    );
    asked["training"]["lora"] = json!({});
    assert_eq!(Scenario::from_value(&asked).unwrap().training.quantization, Quantization::Nf4);
    asked["training"]["quantization"] = json!("int4");
    assert!(refused(&asked).contains("none, int8, nf4"), "{}", refused(&asked));
}

/// `prepare_model_for_kbit_training` can only be left out where there is something it would do.
#[test]
fn a_base_that_is_not_prepared_is_quantized_and_trained() {
    let mut asked = with("training", "prepare_kbit", json!(false));
    assert_eq!(
        refused(&asked),
        "training.prepare_kbit: without quantization there is nothing to prepare; leave it out, or set \
         training.quantization to int8, nf4 or nf4-double"
    );
    asked["training"]["lora"] = json!({});
    asked["training"]["quantization"] = json!("nf4");
    let read = Scenario::from_value(&asked).unwrap();
    assert!(!read.training.prepare_kbit);
    assert_eq!(read.to_value()["training"]["prepare_kbit"], json!(false));
    asked["training"]["lora"] = json!({ "modules_to_save": ["lm_head"] });
    asked["training"]["precision"] = json!("fp16-amp");
    assert!(refused(&asked).contains("GradScaler refuses gradients in float16"), "{}", refused(&asked));
    asked["training"]["precision"] = json!("bf16-amp");
    assert!(Scenario::from_value(&asked).is_ok());
    // True is what holds anyway, and is not written.
    let said = with("training", "prepare_kbit", json!(true));
    assert_eq!(Scenario::from_value(&said).unwrap().to_value()["training"].get("prepare_kbit"), None);
    let inference = json!({
        "model": { "catalog": "gpt2" },
        "training": { "mode": "inference", "quantization": "nf4", "prepare_kbit": false },
    });
    assert_eq!(refused(&inference), "training.prepare_kbit: says nothing in inference; leave it out");
}

#[test]
fn schemas() {
    let schema = |schema: Value| json!({ "schema": schema, "model": { "family": "mlp" }, "later": 1 });
    assert_eq!(
        refused(&schema(json!(2))),
        "schema: made by a newer Plimsoll (schema 2; this one reads schema 1); update Plimsoll"
    );
    assert!(refused(&schema(json!(1e30))).contains("newer"));
    assert!(refused(&schema(json!(0))).starts_with("schema: there is no schema 0"));
    assert!(refused(&schema(json!("1"))).starts_with("schema: expected the number 1"));
    assert!(refused(&schema(json!(1))).starts_with("later: unknown key"));
}

/// As transformers has it where nobody switches it off: the hand-written loop goes by the config, the Trainer never caches.
#[test]
fn the_cache_goes_by_loop_and_config() {
    let hf = |use_cache: Value| json!({ "hf": { "model_type": "gpt2", "use_cache": use_cache } });
    let read = |model: &Value, training: Value| {
        let asked = json!({ "model": model, "training": training });
        let read = Scenario::from_value(&asked).unwrap_or_else(|e| panic!("{e}: {asked}"));
        let again = Scenario::from_value(&read.to_value()).unwrap();
        assert_eq!(again, read, "{asked}");
        read.training.use_cache
    };
    let held = || json!({ "keep_outputs": true });
    let (catalogued, silent) = (json!({ "catalog": "gpt2" }), json!({ "hf": { "model_type": "gpt2" } }));
    assert!(read(&catalogued, held()) && read(&hf(json!(true)), held()));
    assert!(!read(&silent, held()) && !read(&hf(json!(false)), held()));
    for model in [&catalogued, &hf(json!(true))] {
        assert!(!read(model, json!({})), "the Trainer switches it off");
        assert!(!read(model, json!({ "keep_outputs": true, "checkpointing": "full" })));
        assert!(!read(model, json!({ "keep_outputs": true, "use_cache": false })), "said is said");
        assert!(read(model, json!({ "use_cache": true })));
    }
    assert!(!read(&json!({ "catalog": "bert-base-uncased" }), held()), "an encoder has none");
    let asked = |training: Value| json!({ "model": { "catalog": "gpt2" }, "training": training });
    let refused = |training: Value| match Scenario::from_value(&asked(training)).and_then(|s| s.estimated().map(|_| ()))
    {
        Err(error) => error.to_string(),
        Ok(()) => String::new(),
    };
    assert!(refused(json!({ "use_cache": true, "checkpointing": "full" })).contains("gradient checkpointing"));
    assert!(refused(json!({ "use_cache": true, "loss_impl": "chunked" })).contains("not estimated yet"));
    assert!(refused(json!({ "use_cache": true, "mode": "inference" })).contains("says nothing in inference"));
}
