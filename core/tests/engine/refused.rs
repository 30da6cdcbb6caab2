//! Configurations that are refused, and by which key.

use plimsoll_core::Scenario;
use plimsoll_core::estimate::Run;
use serde_json::{Value, json};

use crate::models::{decoder, refusal};

#[test]
fn sizes_that_contradict_one_another_are_refused_by_key() {
    for (model, key) in [
        (
            decoder("llama", &json!({"num_attention_heads": 5, "num_key_value_heads": 2})),
            "model.hf.num_key_value_heads",
        ),
        (decoder("llama", &json!({"head_dim": 7})), "model.hf.head_dim"),
        (decoder("llama", &json!({"hidden_act": "softsign"})), "model.hf.hidden_act"),
        (decoder("llama", &json!({"num_hidden_layers": 0})), "model.hf.num_hidden_layers"),
        (decoder("llama", &json!({"num_hidden_layers": 100_000})), "model.hf.num_hidden_layers"),
        (decoder("llama", &json!({"hidden_size": -1})), "model.hf.hidden_size"),
        (decoder("llama", &json!({"hidden_size": 1.5})), "model.hf.hidden_size"),
        (decoder("llama", &json!({"hidden_size": "32"})), "model.hf.hidden_size"),
        (decoder("llama", &json!({"hidden_size": u64::MAX})), "model.hf.hidden_size"),
        (decoder("llama", &json!({"vocab_size": [1]})), "model.hf.vocab_size"),
        (decoder("llama", &json!({"attention_dropout": 1.0})), "model.hf.attention_dropout"),
        (decoder("llama", &json!({"attention_bias": "yes"})), "model.hf.attention_bias"),
        (json!({"hf": {"model_type": "gpt2", "n_embd": 30, "n_head": 4}}), "model.hf.n_head"),
        (json!({"hf": {"model_type": "gpt2", "activation_function": "softsign"}}), "model.hf.activation_function"),
        (json!({"hf": {"model_type": "gpt2", "add_cross_attention": true}}), "model.hf.add_cross_attention"),
        (json!({"hf": {"model_type": "gpt2", "reorder_and_upcast_attn": true}}), "model.hf.reorder_and_upcast_attn"),
        (json!({"family": "nanogpt", "n_embd": 30, "n_head": 4}), "model.n_head"),
    ] {
        let error = refusal(&model);
        assert_eq!(error.key, key, "{error}");
        assert!(!error.problem.is_empty() && !error.hint.is_empty(), "{error}");
    }
}

/// A kind of layer for each: transformers 5.17 reads no config with more, fewer or others (`validate_layer_type`).
#[test]
fn kinds_of_layers_are_as_many_as_layers_and_known() {
    for model_type in [
        "qwen2",
        "qwen3",
        "gemma2",
        "gemma3_text",
        "gemma4_text",
        "gpt_oss",
        "smollm3",
        "olmo3",
        "qwen2_moe",
        "modernbert",
    ] {
        let with = |types: Value| {
            let more =
                json!({"num_hidden_layers": 2, "sliding_window": 16, "use_sliding_window": true, "layer_types": types});
            decoder(model_type, &more)
        };
        for types in [
            json!(["full_attention"]),
            json!(["full_attention", "sliding_attention", "full_attention"]),
            json!(["full_attention", "linear_attention"]),
        ] {
            let error = refusal(&with(types.clone()));
            assert_eq!(error.key, "model.hf.layer_types", "{model_type} {types}: {error}");
        }
    }
}

/// Without head_dim a hidden size that the heads do not divide has no head size.
#[test]
fn heads_that_do_not_divide_the_hidden_size_are_refused() {
    let model =
        json!({"hf": {"model_type": "llama", "hidden_size": 30, "num_attention_heads": 4, "num_key_value_heads": 2}});
    let error = refusal(&model);
    assert_eq!(error.key, "model.hf.num_attention_heads");
    assert!(error.hint.contains("hidden_size / num_attention_heads"), "{error}");
    let odd =
        json!({"hf": {"model_type": "llama", "hidden_size": 28, "num_attention_heads": 4, "num_key_value_heads": 2}});
    assert_eq!(refusal(&odd).key, "model.hf.head_dim", "7 dimensions cannot be turned in pairs");
}

/// A learned table of positions ends; rotary positions do not.
#[test]
fn a_sequence_beyond_the_learned_positions_is_refused() {
    let with_seq = |model: Value, seq: u64| {
        Scenario::from_value(&json!({"model": model, "input": {"batch": 1, "seq": seq}})).and_then(|s| Run::new(&s))
    };
    let gpt2 = json!({"hf": {"model_type": "gpt2", "vocab_size": 100, "n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 4}});
    assert!(with_seq(gpt2.clone(), 16).is_ok());
    assert_eq!(with_seq(gpt2, 17).map(|_| ()).unwrap_err().key, "input.seq");
    let nanogpt =
        json!({"family": "nanogpt", "n_layer": 1, "n_embd": 32, "n_head": 4, "vocab_size": 100, "block_size": 16});
    assert_eq!(with_seq(nanogpt, 17).map(|_| ()).unwrap_err().key, "input.seq");
    assert!(with_seq(decoder("llama", &json!({"max_position_embeddings": 16})), 64).is_ok());
}

#[test]
fn what_a_family_does_not_have_is_refused_by_name() {
    let with = |model: Value, training: Value| {
        let input = if model["family"] == "nanogpt" { json!({"batch": 1, "seq": 8}) } else { json!({"batch": 1}) };
        Scenario::from_value(&json!({"model": model, "input": input, "training": training}))
            .and_then(|s| Run::new(&s))
            .map(|_| ())
            .unwrap_err()
    };
    assert_eq!(with(json!({"family": "mlp"}), json!({"checkpointing": "full"})).key, "training.checkpointing");
    assert_eq!(with(json!({"family": "nanogpt"}), json!({"attention": "eager"})).key, "training.attention");
    let lora = json!({"lora": {"rank": 4, "targets": ["no_such_linear"], "dropout": 0.0}});
    let error = Scenario::from_value(
        &json!({"model": decoder("llama", &json!({})), "input": {"batch": 1, "seq": 8}, "training": lora}),
    )
    .and_then(|s| Run::new(&s))
    .map(|_| ())
    .unwrap_err();
    assert_eq!(error.key, "training.lora.targets");
}

/// Sizes that pass one by one may still be absurd together.
#[test]
fn a_tensor_of_more_than_a_pebibyte_is_refused() {
    // GPT-2's c_attn is three times as wide as the model: 3 x 2^48 numbers.
    let error = refusal(&json!({"hf": {"model_type": "gpt2", "n_embd": 1 << 24, "n_head": 1, "n_layer": 1}}));
    assert_eq!(error.key, "scenario");
    assert!(error.problem.contains("1048576.00 GiB"), "{error}");
}

/// Each of these sizes is allowed by itself; together they are beyond 64 bits. Arithmetic is checked in test builds.
#[test]
fn sizes_that_overflow_together_are_refused() {
    let huge = json!(1 << 24);
    for (config, key) in [
        (
            json!({"num_attention_heads": huge, "num_key_value_heads": huge, "head_dim": huge, "hidden_size": huge}),
            "model.hf.head_dim",
        ),
        (json!({"num_attention_heads": huge, "num_key_value_heads": 1, "head_dim": huge}), "model.hf.head_dim"),
        (json!({"hidden_size": huge, "intermediate_size": huge, "num_hidden_layers": 2048}), "scenario"),
        (json!({"num_attention_heads": 1 << 22, "num_key_value_heads": 1 << 22, "head_dim": 2}), "scenario"),
    ] {
        let mut config = config;
        config["model_type"] = json!("llama");
        for training in [json!({}), json!({"attention": "eager"}), json!({"precision": "fp32"})] {
            let input = json!({"batch": 256, "seq": 1 << 24});
            let text = json!({"model": {"hf": config}, "input": input, "training": training});
            let error = Scenario::from_value(&text).and_then(|s| Run::new(&s)).map(|_| ()).unwrap_err();
            assert_eq!(error.key, key, "{error}");
        }
    }
}
