//! Inference: generations and single forwards, phase by phase as the estimate counts them.

use plimsoll_core::Scenario;
use plimsoll_core::estimate::Run;
use serde_json::{Value, json};

use super::{job, report::Report, several};

fn llama(input: Value, training: Value) -> Scenario {
    let mut training = training;
    training["mode"] = "inference".into();
    job::llama(input, training)
}

fn hf(task: &str, config: Value, input: Value, training: Value) -> Scenario {
    let mut training = training;
    training["mode"] = "inference".into();
    job::parts(json!({ "hf": config, "task": task }), input, training)
}

/// Name and micro-batch of the phases of one step; `load` is of none.
fn phases(list: &[&Value], step: u64) -> Vec<String> {
    let of_it = list.iter().filter(|p| p["step"] == step || (step == 1 && p["step"].is_null()));
    of_it.map(|p| format!("{} {}", p["name"], p["micro_batch"])).collect()
}

/// Two runs of a scenario: phases and parameters are those of the estimate, and the second run is like the first.
fn as_estimated(scenario: &Scenario) -> Report {
    let estimate = Run::new(scenario).unwrap().into_estimate();
    let report = several::train(scenario);
    let estimated = json!(estimate);
    let estimated: Vec<&Value> = estimated["phases"].as_array().unwrap().iter().collect();
    let measured = report.all("phase");
    assert_eq!(phases(&measured, 1), phases(&estimated, 1), "{}", scenario.to_value());
    assert_eq!(phases(&measured, 2), phases(&measured, 1)[1..], "{}", scenario.to_value());
    assert_eq!(report.one("ready")["parameters"], json!(estimate.parameters), "{}", scenario.to_value());
    let steps = report.all("step");
    assert_eq!(steps.len(), 2);
    for step in steps {
        assert_eq!((&step["loss"], &step["scale"], &step["skipped"]), (&Value::Null, &Value::Null, &json!(false)));
        assert_eq!(step["samples"], scenario.input.batch);
    }
    assert!(report.notes().is_empty(), "{:?}", report.notes());
    report
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn a_decoder_generates_as_many_tokens_as_are_asked_for() {
    for (mask, precision) in [("none", "fp32"), ("ones", "bf16"), ("padded", "bf16-amp")] {
        let input = json!({ "batch": 2, "seq": 16, "max_new_tokens": 8, "attention_mask": mask });
        let report = as_estimated(&llama(input, json!({ "precision": precision })));
        let names: Vec<&str> = report.all("phase").iter().filter_map(|p| p["name"].as_str()).collect();
        assert_eq!(names, ["load", "input", "prefill", "decode", "input", "prefill", "decode"]);
        // Those that are made.
        assert_eq!(report.all("step")[0]["tokens"], 16);
    }
    // The first token is the prompt's.
    let input = json!({ "batch": 1, "seq": 4, "max_new_tokens": 1 });
    let report = as_estimated(&llama(input, json!({})));
    assert!(report.all("phase").iter().all(|p| p["name"] != "decode"));
}

/// A config whose every token would end the generation, and one that asks for sampling and beams.
#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn nothing_a_config_says_ends_a_generation() {
    let mut config = json!({
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "vocab_size": 8, "max_position_embeddings": 64, "pad_token_id": 0,
    });
    config["eos_token_id"] = json!((0..8).collect::<Vec<u32>>());
    let input = json!({ "batch": 2, "seq": 8, "max_new_tokens": 12 });
    as_estimated(&hf("causal-lm", config.clone(), input.clone(), json!({})));
    config["eos_token_id"] = 1.into();
    config["use_cache"] = false.into();
    as_estimated(&hf("causal-lm", config, input, json!({})));
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn other_decoders() {
    let config = |model_type: &str, more: Value| {
        let mut config = json!({
            "model_type": model_type, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": 300, "max_position_embeddings": 64,
        });
        let (Value::Object(into), Value::Object(more)) = (&mut config, more) else { unreachable!() };
        into.extend(more);
        config
    };
    let gpt2 = json!({ "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 300,
        "n_positions": 64 });
    for config in [
        gpt2,
        config("mistral", json!({ "num_key_value_heads": 2, "sliding_window": 8 })),
        config("gemma2", json!({ "num_key_value_heads": 2, "head_dim": 16 })),
        config("mixtral", json!({ "num_key_value_heads": 2, "num_local_experts": 4 })),
        config("opt", json!({ "ffn_dim": 128, "word_embed_proj_dim": 64 })),
    ] {
        let input = json!({ "batch": 2, "seq": 16, "max_new_tokens": 4 });
        as_estimated(&hf("causal-lm", config, input, json!({ "precision": "bf16" })));
    }
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn what_makes_no_text_runs_forward_once() {
    let bert = json!({ "model_type": "bert", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 300 });
    let text = json!({ "batch": 2, "seq": 16, "attention_mask": "padded" });
    let report = as_estimated(&hf("masked-lm", bert.clone(), text.clone(), json!({ "precision": "bf16-amp" })));
    let names: Vec<&str> = report.all("phase").iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["load", "input", "forward", "input", "forward"]);
    assert_eq!(report.all("step")[1]["tokens"], 32);
    as_estimated(&hf("sequence-classification", bert, text, json!({ "precision": "fp32" })));
    let vit = json!({ "model_type": "vit", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": 32, "patch_size": 8 });
    as_estimated(&hf("image-classification", vit, json!({ "batch": 2, "image": 32 }), json!({ "precision": "bf16" })));
    let clip = json!({
        "model_type": "clip",
        "text_config": { "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
            "num_attention_heads": 2, "vocab_size": 99, "max_position_embeddings": 16 },
        "vision_config": { "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
            "num_attention_heads": 2, "image_size": 32, "patch_size": 8 },
    });
    as_estimated(&hf("contrastive", clip, json!({ "batch": 2 }), json!({})));
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn own_families_run_without_targets() {
    let inference = json!({ "mode": "inference", "precision": "fp32" });
    for (model, input) in [
        (json!({ "family": "mlp", "d_in": 24, "hidden": 48, "layers": 3 }), json!({ "batch": 4 })),
        (
            json!({ "family": "nanogpt", "n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 100, "block_size": 32 }),
            json!({ "batch": 2, "seq": 16 }),
        ),
        (json!({ "family": "nbeats", "stacks": 3, "width": 32 }), json!({ "batch": 8 })),
        (json!({ "family": "gat", "n_feat": 40 }), json!({ "seq": 50 })),
        (json!({ "family": "resnet", "variant": "resnet18" }), json!({ "batch": 2, "image": 64 })),
    ] {
        as_estimated(&job::parts(model, input, inference.clone()));
    }
}

/// Their text begins with one token, whatever Whisper's config would begin with besides.
#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn encoder_decoders_generate() {
    let t5 = json!({ "model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4,
        "vocab_size": 300 });
    let bart = json!({ "model_type": "bart", "vocab_size": 300, "d_model": 64, "encoder_layers": 1, "decoder_layers": 2,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
        "max_position_embeddings": 64 });
    let whisper = json!({ "model_type": "whisper", "vocab_size": 300, "num_mel_bins": 16, "d_model": 64,
        "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_source_positions": 100, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "begin_suppress_tokens": [],
        "suppress_tokens": [], "forced_decoder_ids": [[1, 5], [2, 6]] });
    let text = json!({ "batch": 2, "seq": 16, "max_new_tokens": 5, "attention_mask": "padded" });
    for (task, config, input) in [
        ("seq2seq-lm", t5, text.clone()),
        ("seq2seq-lm", bart, text),
        ("speech-seq2seq", whisper, json!({ "batch": 2, "max_new_tokens": 5 })),
    ] {
        let report = as_estimated(&hf(task, config, input, json!({ "precision": "fp32" })));
        assert_eq!(report.all("step")[1]["tokens"], 10, "{task}");
    }
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn a_mode_nobody_knows_is_refused() {
    let input = json!({ "batch": 1, "seq": 16, "max_new_tokens": 4 });
    let scenario = llama(input, json!({ "precision": "fp32" }));
    let mut job = job::job(&scenario);
    job["scenario"]["training"]["mode"] = "dream".into();
    let report = several::run(&job, &[job::first_attempt(&scenario, 1), job::finish()]);
    assert!(report.refused("bad-job").0.contains("training.mode"));
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn without_phases_only_the_runs_are_told() {
    let scenario = llama(json!({ "batch": 2, "seq": 16, "max_new_tokens": 4 }), json!({}));
    let mut job = job::job(&scenario);
    job["phases"] = false.into();
    let report = several::run(&job, &[job::first_attempt(&scenario, 3), job::finish()]);
    report.finished();
    assert_eq!((report.all("phase").len(), report.all("step").len()), (0, 3));
}
