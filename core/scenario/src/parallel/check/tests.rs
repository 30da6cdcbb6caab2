//! What is refused, and by which key.

use serde_json::{Value, json};

use crate::Scenario;

/// What stands against a LoRA run that is spread as `parallel` says, if anything does.
fn problem(parallel: Value, training: Value) -> Option<String> {
    let mut training = training;
    training["lora"] = training.get("lora").cloned().unwrap_or_else(|| json!({ "rank": 8 }));
    let model = json!({ "hf": { "model_type": "bert" }, "task": "masked-lm" });
    let scenario = json!({ "model": model, "input": { "seq": 16 }, "training": training, "parallel": parallel });
    let checked = Scenario::from_value(&scenario).and_then(|scenario| scenario.estimated());
    checked.err().map(|error| error.to_string())
}

#[test]
fn adapters_of_an_encoder_are_spread_by_every_strategy() {
    for strategy in ["ddp", "fsdp2", "zero-0", "zero-1", "zero-2", "zero-3"] {
        assert_eq!(problem(json!({ "gpus": 4, "strategy": strategy }), json!({ "precision": "bf16" })), None);
    }
}

#[test]
fn tables_of_positions_that_are_cast_once_are_refused_where_layers_are_recomputed() {
    let of = |model: &str, parallel: Value, checkpointing: &str| {
        let scenario = json!({ "model": { "hf": { "model_type": model } }, "input": { "seq": 16 },
            "training": { "precision": "fp32", "checkpointing": checkpointing }, "parallel": parallel });
        Scenario::from_value(&scenario).and_then(|scenario| scenario.estimated()).is_ok()
    };
    let cut = |strategy: &str, wrap: &str| json!({ "gpus": 4, "strategy": strategy, "fsdp": { "param_dtype": "bf16", "wrap": wrap } });
    for model in ["olmo", "olmo2"] {
        assert!(!of(model, cut("fsdp2", "layer"), "full"));
        assert!(of(model, cut("fsdp2", "root"), "full"));
        assert!(of(model, cut("fsdp1", "layer"), "full"));
        assert!(of(model, cut("fsdp2", "layer"), "none"));
        assert!(of(model, cut("fsdp2", "layer"), "reentrant"));
        assert!(of(model, json!({ "gpus": 4, "strategy": "fsdp2" }), "full"));
    }
    assert!(of("olmoe", cut("fsdp2", "layer"), "full") && of("llama", cut("fsdp2", "layer"), "full"));
}

#[test]
fn a_quantized_base_is_cut_where_it_is_packed_in_floating_point_numbers() {
    let of = |strategy: &str, training: Value| {
        let fsdp = if strategy == "fsdp1" { json!({ "use_orig_params": true }) } else { json!({}) };
        problem(json!({ "gpus": 2, "strategy": strategy, "fsdp": fsdp }), training).unwrap_or_default()
    };
    let nf4 = |storage: &str| json!({ "precision": "fp32", "quantization": "nf4", "quant_storage": storage });
    for strategy in ["ddp", "zero-1", "zero-2", "zero-3"] {
        assert_eq!(
            problem(json!({ "gpus": 2, "strategy": strategy }), json!({ "precision": "fp32", "quantization": "int8" })),
            None
        );
        assert_eq!(problem(json!({ "gpus": 2, "strategy": strategy }), nf4("uint8")), None, "{strategy}");
    }
    for strategy in ["fsdp1", "fsdp2"] {
        assert_eq!(of(strategy, nf4("float32")), "");
        assert!(of(strategy, nf4("uint8")).contains("set it to float32"), "{}", of(strategy, nf4("uint8")));
        assert!(of(strategy, json!({ "precision": "fp32", "quantization": "int8" })).contains("int8"));
    }
    assert!(of("fsdp1", nf4("bfloat16")).contains("uniform dtype"));
    assert!(problem(json!({ "gpus": 2, "strategy": "zero-3" }), nf4("bfloat16")).unwrap_or_default().contains("cast"));
}

#[test]
fn what_pytorch_lays_into_no_flat_parameter_is_refused_in_its_words() {
    let fsdp1 = |originals: bool| json!({ "gpus": 4, "strategy": "fsdp1", "fsdp": { "use_orig_params": originals } });
    let of = |originals, training| problem(fsdp1(originals), training).unwrap_or_default();
    assert!(of(false, json!({ "precision": "fp32" })).contains("uniform `requires_grad`"));
    assert!(of(true, json!({ "precision": "bf16" })).contains("uniform dtype"));
    let own = json!({ "precision": "bf16", "lora": { "rank": 8, "autocast_adapter_dtype": false } });
    assert_eq!(of(true, own), "");
    assert_eq!(of(true, json!({ "precision": "fp32" })), "");
}

/// A backward within another one: what PyTorch fails on is refused, and what is not followed.
#[test]
fn reentrant_checkpoints_run_under_most_strategies() {
    let of = |strategy: &str, fsdp: Value| {
        let training = json!({ "precision": "fp32", "checkpointing": "reentrant" });
        problem(json!({ "gpus": 4, "strategy": strategy, "fsdp": fsdp }), training).unwrap_or_default()
    };
    for strategy in ["ddp", "zero-0", "zero-1", "zero-2", "zero-3", "fsdp2"] {
        assert_eq!(of(strategy, json!({})), "", "{strategy}");
    }
    assert_eq!(of("fsdp1", json!({ "use_orig_params": true })), "");
    assert!(of("fsdp1", json!({ "use_orig_params": true, "wrap": "root" })).contains("wraps the model as one"));
    assert!(of("fsdp1", json!({ "wrap": "peft" })).contains("is not estimated yet"));
    assert!(of("data-parallel", json!({})).contains("is not estimated yet"));
}
