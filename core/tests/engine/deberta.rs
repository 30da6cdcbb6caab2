//! DeBERTa: published sizes, and what its config may say.

use serde_json::{Value, json};

use crate::models::{parameters, refusal};

fn deberta(changes: &Value) -> Value {
    let mut hf = json!({
        "model_type": "deberta-v2", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 128,
        "relative_attention": true, "position_buckets": 16, "share_att_key": true, "pos_att_type": "p2c|c2p",
        "position_biased_input": false,
    });
    for (key, value) in changes.as_object().unwrap() {
        hf[key] = value.clone();
    }
    json!({ "hf": hf })
}

/// The published counts are those of the model without a head; the masked-language head is `dense`, a norm and a
/// bias for every token, its matrix that of the word embeddings.
#[test]
fn published_models_have_their_published_sizes() {
    for (id, hidden, expected) in [
        ("deberta-v3-xsmall", 384, 70_682_112),
        ("deberta-v3-small", 768, 141_304_320),
        ("deberta-v3-base", 768, 183_831_552),
        ("deberta-v3-large", 1024, 434_012_160),
        ("deberta-v2-xlarge", 1536, 884_593_152),
        ("deberta-v2-xxlarge", 1536, 1_564_549_632),
    ] {
        let head = hidden * hidden + hidden + 2 * hidden + 128_100;
        assert_eq!(parameters(&json!({"catalog": id})) - head, expected, "{id}");
    }
}

#[test]
fn each_key_adds_the_parameters_of_its_module() {
    let (h, layers) = (32u64, 2u64);
    let size = |changes: Value| parameters(&deberta(&changes));
    let plain = size(json!({}));
    let own = |types: Value| size(json!({"share_att_key": false, "pos_att_type": types})) - plain;
    assert_eq!(own(json!(["c2p"])), layers * (h * h + h), "a projection of the positions");
    assert_eq!(own(json!("p2c|c2p")), 2 * layers * (h * h + h));
    assert_eq!(size(json!({"norm_rel_ebd": "layer_norm"})) - plain, 2 * h);
    assert_eq!(size(json!({"conv_kernel_size": 3})) - plain, 3 * h * h + h + 2 * h);
    assert_eq!(size(json!({"position_biased_input": true})) - plain, 128 * h);
    assert_eq!(size(json!({"type_vocab_size": 2})) - plain, 2 * h);
    // Without buckets, positions reach as far as the model does.
    assert_eq!(size(json!({"position_buckets": null})) - plain, (2 * 128 - 2 * 16) * h);
    let scores = |model: &mut Value| model["task"] = json!("sequence-classification");
    let mut classifier = deberta(&json!({"id2label": {"0": "a", "1": "b", "2": "c"}}));
    scores(&mut classifier);
    let head = h * h + h + 2 * h + 100;
    assert_eq!(parameters(&classifier) + head - plain, h * h + h + 3 * h + 3, "pooler and classifier");
}

#[test]
fn a_config_says_which_key_is_wrong() {
    for (changes, key) in [
        (json!({"attention_head_size": 16}), "attention_head_size"),
        (json!({"conv_kernel_size": 4}), "conv_kernel_size"),
        (json!({"conv_kernel_size": 3, "conv_groups": 5}), "conv_groups"),
        (json!({"hidden_act": "softsign"}), "hidden_act"),
        (json!({"legacy": false, "embedding_size": 16}), "embedding_size"),
    ] {
        assert_eq!(refusal(&deberta(&changes)).key, format!("model.hf.{key}"), "{changes}");
    }
}
