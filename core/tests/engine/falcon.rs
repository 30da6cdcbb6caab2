//! Falcon: published sizes, and what its config may say.

use serde_json::{Value, json};

use crate::models::{parameters, refusal};

fn falcon(changes: &Value) -> Value {
    let mut hf = json!({"model_type": "falcon", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4});
    for (key, value) in changes.as_object().unwrap() {
        hf[key] = value.clone();
    }
    json!({ "hf": hf })
}

/// Counts of the published models, the head tied.
#[test]
fn published_models_have_their_published_sizes() {
    for (id, expected) in
        [("falcon-rw-1b", 1_311_625_216), ("falcon-7b", 6_921_720_704), ("falcon-40b", 41_303_293_952)]
    {
        assert_eq!(parameters(&json!({"catalog": id})), expected, "{id}");
    }
}

#[test]
fn every_split_of_the_fused_projection_has_its_width() {
    let (h, layers, head) = (64u64, 2u64, 16u64);
    let size = |changes: Value| parameters(&falcon(&changes));
    let one = size(json!({}));
    assert_eq!(size(json!({"multi_query": false})) - one, layers * h * (2 * h - 2 * head));
    let grouped = size(json!({"new_decoder_architecture": true, "num_kv_heads": 2}));
    // Two keys and values in place of one, and a second norm.
    assert_eq!(grouped - one, layers * (h * 2 * head + 2 * h));
    let shared = json!({"new_decoder_architecture": true, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1});
    assert_eq!(grouped - size(shared), layers * 2 * h);
    assert_eq!(size(json!({"parallel_attn": false})) - one, layers * 2 * h, "a norm of its own for the mlp");
    assert_eq!(size(json!({"tie_word_embeddings": false})) - one, 100 * h);
}

/// What transformers builds but cannot run is refused.
#[test]
fn what_transformers_cannot_run_is_refused() {
    for (changes, key) in [
        (json!({"multi_query": false, "num_kv_heads": 2}), "num_kv_heads"),
        (json!({"new_decoder_architecture": true, "num_kv_heads": 3}), "num_kv_heads"),
        (json!({"new_decoder_architecture": true, "parallel_attn": false}), "parallel_attn"),
        (json!({"num_ln_in_parallel_attn": 2}), "num_ln_in_parallel_attn"),
        (json!({"hidden_size": 60, "num_attention_heads": 4}), "num_attention_heads"),
        (json!({"activation": "softsign"}), "activation"),
    ] {
        assert_eq!(refusal(&falcon(&changes)).key, format!("model.hf.{key}"), "{changes}");
    }
    // Biases stand for positions: an odd head is no trouble.
    parameters(&falcon(&json!({"hidden_size": 60, "alibi": true})));
}
