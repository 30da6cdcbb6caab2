//! Configurations as transformers saves them, cut to what bears: read as what one would write by hand.
//!
//! `tests/tools/trace/configs.py` asks the same of every type, setting and form.

use serde_json::{Value, json};

use crate::models::{parameters, refusal};
use plimsoll_core::Scenario;
use plimsoll_core::estimate::Run;

/// The estimate's phases and parameters, for one training step of the config.
fn estimated(hf: &Value, training: &Value) -> Value {
    let scenario = json!({"model": {"hf": hf}, "input": {"batch": 2, "seq": 16}, "training": training});
    let run = Run::new(&Scenario::from_value(&scenario).unwrap()).unwrap();
    let value = serde_json::to_value(run.estimate()).unwrap();
    json!([value["parameters"], value["phases"], value["peak"]])
}

fn changed(config: &Value, changes: &Value) -> Value {
    let mut config = config.clone();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

/// `Qwen2MoeConfig(...).to_json_string()` of transformers 5.17.0: without windows their length is saved as 0.
#[test]
fn windows_that_are_off_have_no_length() {
    let saved = json!({
        "model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_act": "silu", "hidden_size": 64,
        "intermediate_size": 96, "layer_types": ["full_attention", "full_attention"], "max_window_layers": 28,
        "mlp_only_layers": [], "moe_intermediate_size": 32, "norm_topk_prob": false, "num_attention_heads": 4,
        "num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_key_value_heads": 2,
        "output_router_logits": false, "pad_token_id": null, "qkv_bias": true,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "shared_expert_intermediate_size": 48,
        "sliding_window": 0, "tie_word_embeddings": false, "transformers_version": "5.17.0", "use_cache": true,
        "use_sliding_window": false, "vocab_size": 500,
    });
    let by_hand = json!({
        "model_type": "qwen2_moe", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, "vocab_size": 500,
    });
    for training in [json!({}), json!({"attention": "eager", "precision": "fp32"})] {
        assert_eq!(estimated(&saved, &training), estimated(&by_hand, &training));
    }
    // Where they are on it is a mistake.
    let on = changed(&saved, &json!({"use_sliding_window": true}));
    assert_eq!(refusal(&json!({"hf": on})).key, "model.hf.sliding_window");
}

/// `attribute_map`: a common name stands for the class's own, and where both are there it is set last.
#[test]
fn a_common_name_stands_for_the_class_s_own() {
    let gpt2 =
        json!({"model_type": "gpt2", "vocab_size": 100, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4});
    let common = json!({
        "model_type": "gpt2", "vocab_size": 100, "max_position_embeddings": 16, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4,
    });
    assert_eq!(estimated(&gpt2, &json!({})), estimated(&common, &json!({})));
    let wide = changed(&gpt2, &json!({"hidden_size": 64}));
    assert_eq!(parameters(&json!({"hf": wide})), parameters(&json!({"hf": changed(&gpt2, &json!({"n_embd": 64}))})));
    // The name that is there is the one that is complained about.
    let wrong = json!({"hf": changed(&gpt2, &json!({"hidden_size": 63}))});
    assert_eq!(refusal(&wrong).key, "model.hf.n_head");
    let wrong = json!({"hf": changed(&gpt2, &json!({"num_attention_heads": 5}))});
    assert_eq!(refusal(&wrong).key, "model.hf.num_attention_heads");
    // Of the names of Qwen3-MoE's experts the one that is saved holds; Mixtral's is the other way round.
    let moe = |family: &str, named: &Value| {
        let sizes = json!({
            "model_type": family, "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
            "num_key_value_heads": 4, "intermediate_size": 16, "moe_intermediate_size": 16, "num_experts_per_tok": 1,
        });
        parameters(&json!({"hf": changed(&sizes, named)}))
    };
    let both = json!({"num_experts": 2, "num_local_experts": 4});
    assert_eq!(moe("qwen3_moe", &both), moe("qwen3_moe", &json!({"num_experts": 4})));
    assert_eq!(moe("mixtral", &both), moe("mixtral", &json!({"num_local_experts": 2})));
    assert_eq!(moe("qwen2_moe", &both), moe("qwen2_moe", &json!({"num_experts": 2})), "it has no other name");
}

/// Height and width, as `image_size` and `patch_size` may be written.
#[test]
fn a_square_may_be_written_with_two_sides() {
    let sizes =
        json!({"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 32, "patch_size": 8});
    let of = |family: &str, changes: &Value| json!({"hf": changed(&changed(&sizes, &json!({"model_type": family})), changes)});
    for family in ["vit", "dinov2"] {
        let listed = of(family, &json!({"image_size": [32, 32], "patch_size": [8, 8]}));
        assert_eq!(parameters(&listed), parameters(&of(family, &json!({}))));
        let refused = refusal(&of(family, &json!({"image_size": [32, 64]})));
        assert_eq!(refused.key, "model.hf.image_size");
        assert!(refused.problem.contains("no square"), "{refused}");
        assert_eq!(refusal(&of(family, &json!({"patch_size": [0, 0]}))).key, "model.hf.patch_size");
    }
}

/// `num_labels` is set last; `id2label` speaks where it does not.
#[test]
fn a_number_of_labels_holds_over_their_names() {
    let classifier = |changes: &Value| {
        let vit = json!({"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4});
        parameters(&json!({"hf": changed(&vit, changes)}))
    };
    let names = json!({"0": "no", "1": "perhaps", "2": "yes"});
    assert_eq!(classifier(&json!({"id2label": names})), classifier(&json!({"num_labels": 3})));
    assert_eq!(classifier(&json!({"id2label": names, "num_labels": 5})), classifier(&json!({"num_labels": 5})));
}

/// ImageNet's thousand names make a file too long to keep: they are counted.
#[test]
fn a_thousand_names_are_counted() {
    let name = |i: u32| format!("tench, Tinca tinca, or another that has a name as long {i}");
    let id2label: serde_json::Map<String, Value> = (0..1000).map(|i| (i.to_string(), name(i).into())).collect();
    let label2id: serde_json::Map<String, Value> = (0..1000).map(|i| (name(i), i.into())).collect();
    let vit = json!({"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4});
    let named = changed(&vit, &json!({"id2label": id2label, "label2id": label2id}));
    let scenario = Scenario::from_value(&json!({"model": {"hf": named}})).unwrap();
    let kept = &scenario.to_value()["model"]["hf"];
    assert_eq!(kept["num_labels"], 1000);
    assert!(kept.get("id2label").is_none() && kept.get("label2id").is_none());
    assert_eq!(
        parameters(&json!({"hf": named})),
        parameters(&json!({"hf": changed(&vit, &json!({"num_labels": 1000}))}))
    );
}
