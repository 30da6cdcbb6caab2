//! Decoders that classify.

use plimsoll_core::Scenario;
use plimsoll_core::catalog::families::TRANSFORMERS;
use plimsoll_core::estimate::Run;
use plimsoll_core::scenario::Task;
use serde_json::{Value, json};

fn run(hf: &Value, batch: u64) -> Run {
    let scenario = json!({
        "model": {"hf": hf, "task": "sequence-classification"},
        "input": {"batch": batch, "seq": 8},
        "training": {"optimizer": "sgd"},
    });
    Run::new(&Scenario::from_value(&scenario).unwrap()).unwrap()
}

fn llama(changes: &Value) -> Value {
    let mut hf = json!({
        "model_type": "llama", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 4, "intermediate_size": 64,
    });
    for (key, value) in changes.as_object().unwrap() {
        hf[key] = value.clone();
    }
    hf
}

/// `nn.Linear(hidden_size, num_labels, bias=False)` in place of the vocabulary's head.
#[test]
fn a_row_for_every_label_takes_the_heads_place() {
    let hidden = 32;
    let size = |changes: Value| run(&llama(&changes), 2).estimate().parameters.total;
    let two = size(json!({}));
    assert_eq!(size(json!({"num_labels": 5})) - two, 3 * hidden);
    assert_eq!(size(json!({"id2label": {"0": "a", "1": "b", "2": "c"}})) - two, hidden);
    assert_eq!(size(json!({"tie_word_embeddings": true})), two, "there is nothing to tie");
}

/// A known padding token is looked for; transformers runs single samples without one.
#[test]
fn the_last_token_is_looked_for_where_padding_is_known() {
    let looks = |changes: Value, batch| {
        let run = run(&llama(&changes), batch);
        run.ledger().storages.iter().any(|storage| run.ledger().op(storage) == "argmax")
    };
    assert!(looks(json!({"pad_token_id": 0}), 1));
    assert!(!looks(json!({}), 1));
    assert!(looks(json!({}), 2), "more samples need it");
}

/// Every decoder but GLM-4.5, GLM-4.7-Flash, Gemma 4's text models, OLMoE, Granite, Llama 4's text model and the Qwens that take images, which transformers has no such class of;
/// and Qwen3.5 beside its tower, whose class puts the head on both, which is not estimated.
#[test]
fn decoders_classify() {
    for family in TRANSFORMERS.iter().filter(|f| f.tasks.contains(&Task::CausalLm)) {
        let classifies = family.tasks.contains(&Task::SequenceClassification);
        let has_none = [
            ["glm4_moe", "glm4_moe_lite", "gemma4_text", "gemma4_unified_text"].as_slice(),
            &["olmoe", "granite", "llama4_text", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"],
            &["qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text"],
        ]
        .concat();
        assert_eq!(classifies, !has_none.contains(&family.name), "{}", family.name);
    }
}
