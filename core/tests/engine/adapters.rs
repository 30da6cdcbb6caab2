//! What adapters add, and what they leave alone.

use plimsoll_core::Scenario;
use plimsoll_core::estimate::Run;
use serde_json::{Value, json};

use crate::models::{decoder, parameters};

/// peft trains two matrices a target; the base is frozen, and a tied head counts once.
#[test]
fn adapters_add_their_own_parameters_and_freeze_the_rest() {
    let run = |targets: Value| {
        let text = json!({
            "model": decoder("llama", &json!({})),
            "input": {"batch": 1, "seq": 8},
            "training": {"lora": {"rank": 4, "targets": targets, "dropout": 0.0}}
        });
        Run::new(&Scenario::from_value(&text).unwrap()).unwrap().estimate().parameters
    };
    let base = parameters(&decoder("llama", &json!({})));
    let (h, i, kv) = (32u64, 48u64, 16u64);
    let queries = 2 * 4 * (h + h);
    assert_eq!(run(json!(["q_proj"])).trainable, queries);
    assert_eq!(run(json!(["q_proj"])).total, base + queries);
    let all = 2 * 4 * ((h + h) + 2 * (h + kv) + (h + h) + 2 * (h + i) + (i + h));
    assert_eq!(run(json!("all-linear")).trainable, all, "every linear but the head");
    assert_eq!(run(json!(["lm_head"])).trainable, 4 * (h + 100), "the head only by name");
}

/// Of a decoder: what the recipe's adapters train and what there is in all.
fn adapted(lora: Value, quantization: &str) -> plimsoll_core::Result<(u64, u64)> {
    let text = json!({
        "model": decoder("llama", &json!({})),
        "input": {"batch": 1, "seq": 8},
        "training": {"lora": lora, "quantization": quantization}
    });
    let parameters = Run::new(&Scenario::from_value(&text)?)?.into_estimate().parameters;
    Ok((parameters.trainable, parameters.total))
}

/// DoRA learns one number more for each output.
#[test]
fn dora_adds_a_magnitude_an_output() {
    let (trained, total) = adapted(json!({"rank": 4, "targets": ["q_proj"]}), "none").unwrap();
    let magnitudes = 2 * 32;
    let dora = json!({"rank": 4, "targets": ["q_proj"], "dora": true});
    assert_eq!(adapted(dora, "none"), Ok((trained + magnitudes, total + magnitudes)));
}

/// A module to save is there twice: the original, frozen, and the copy that is trained. Names match as ends of paths.
#[test]
fn modules_to_save_are_trained_in_a_copy() {
    let (trained, total) = adapted(json!({"rank": 4, "targets": ["q_proj"]}), "none").unwrap();
    let saved = |names: Value| adapted(json!({"rank": 4, "targets": ["q_proj"], "modules_to_save": names}), "none");
    let (words, norms) = (100 * 32, 5 * 32);
    assert_eq!(saved(json!(["embed_tokens"])), Ok((trained + words, total + words)));
    assert_eq!(saved(json!(["norm"])), Ok((trained + norms, total + norms)), "two in each layer end with it");
    let all = adapted(json!({"rank": 4, "modules_to_save": ["down_proj"]}), "none").unwrap().0;
    let without = adapted(json!({"rank": 4}), "none").unwrap().0;
    assert_eq!(all, without + 2 * 48 * 32 - 2 * 4 * (48 + 32), "what is saved carries no adapter");
    let error = saved(json!(["embed_token"])).unwrap_err();
    assert_eq!(error.key, "training.lora.modules_to_save");
    assert!(error.problem.contains("\"embed_token\""), "{error}");
}

/// Quantized numbers count as numbers; what is not quantized can be saved, a quantized linear cannot.
#[test]
fn a_quantized_base_counts_what_it_stands_for() {
    let lora = json!({"rank": 4});
    for quantization in ["int8", "nf4", "nf4-double"] {
        assert_eq!(adapted(lora.clone(), quantization), adapted(lora.clone(), "none"), "{quantization}");
    }
    assert!(adapted(json!({"rank": 4, "modules_to_save": ["lm_head"]}), "nf4").is_ok());
    let error = adapted(json!({"rank": 4, "modules_to_save": ["down_proj"]}), "nf4").unwrap_err();
    assert!(error.problem.contains("down_proj is quantized"), "{error}");
    let family = json!({"model": {"family": "mlp"}, "training": {"lora": {}, "quantization": "nf4"}});
    let error = Scenario::from_value(&family).and_then(|s| Run::new(&s).map(|_| ())).unwrap_err();
    assert_eq!(error.key, "training.quantization");
}

/// peft turns the names of experts' projections, and `all-linear`, into adapters on the stacked tensors and the router, where
/// it translates them; in Qwen2-MoE they name the shared expert's linears alone.
#[test]
fn adapters_on_experts() {
    const RANK: u64 = 4;
    let run = |model_type: &str, lora: Value| {
        let text = json!({
            "model": decoder(model_type, &json!({})),
            "input": {"batch": 1, "seq": 8},
            "training": {"lora": lora}
        });
        let run = Scenario::from_value(&text).and_then(|scenario| Run::new(&scenario));
        run.map(|run| run.estimate().parameters.trainable)
    };
    let trains = |model_type: &str, targets: Value| {
        run(model_type, json!({"rank": RANK, "targets": targets, "dropout": 0.0})).unwrap()
    };
    for model_type in ["mixtral", "qwen3_moe", "olmoe"] {
        let [w1, w3, w2] =
            if model_type == "mixtral" { ["w1", "w3", "w2"] } else { ["gate_proj", "up_proj", "down_proj"] };
        let attention = trains(model_type, json!(["q_proj", "k_proj", "v_proj", "o_proj"]));
        let (both, down) = (trains(model_type, json!([w1, w3])), trains(model_type, json!([w2])));
        let router = trains(model_type, json!(["mlp.gate"]));
        assert!([attention, both, down, router].into_iter().all(|trained| trained > 0), "{model_type}");
        assert_eq!(trains(model_type, json!("all-linear")), attention + both + down + router, "{model_type}");

        let refused = |lora: Value| run(model_type, lora).unwrap_err().key;
        assert_eq!(refused(json!({"rank": RANK, "targets": ["q_proj", w1]})), "training.lora.targets");
        assert_eq!(refused(json!({"rank": RANK, "targets": [w2], "dropout": 0.1})), "training.lora.dropout");
        assert_eq!(refused(json!({"rank": RANK, "targets": ["gate"], "dora": true})), "training.lora.dora");
        assert!(run(model_type, json!({"rank": RANK, "targets": ["q_proj"], "dropout": 0.1, "dora": true})).is_ok());
    }
    assert!(run("qwen2_moe", json!({"rank": RANK, "targets": ["down_proj"], "dropout": 0.1})).is_ok());
    assert!(run("llama", json!({"rank": RANK, "targets": ["gate_proj"]})).is_ok(), "there are no experts in it");
}
