//! Models from their configurations: parameter counts, and what a configuration adds.

use plimsoll_core::estimate::Run;
use plimsoll_core::{Error, Scenario};
use serde_json::{Value, json};

/// A scenario of `model` (the table `[model]`), one sample of 8 tokens where it has tokens.
fn scenario(model: &Value) -> Result<Scenario, Error> {
    let tokens = !matches!(model["family"].as_str(), Some("mlp" | "nbeats" | "resnet" | "convnext"));
    let input = if tokens { json!({"batch": 1, "seq": 8}) } else { json!({"batch": 1}) };
    Scenario::from_value(&json!({"model": model, "input": input, "training": {"optimizer": "sgd"}}))
}

pub fn parameters(model: &Value) -> u64 {
    Run::new(&scenario(model).unwrap()).unwrap().estimate().parameters.total
}

pub fn refusal(model: &Value) -> Error {
    match scenario(model).and_then(|s| Run::new(&s)) {
        Ok(_) => panic!("{model} was accepted"),
        Err(error) => error,
    }
}

/// What `sum(p.numel() for p in model.parameters())` says of the published models (transformers 5.17).
#[test]
fn published_models_have_their_published_sizes() {
    for (id, expected) in [
        ("gpt2", 124_439_808),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-2-7b", 6_738_415_616),
        ("llama-3-8b", 8_030_261_248),
        ("mistral-7b-v0.1", 7_241_732_096),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen3-0.6b", 596_049_920),
    ] {
        assert_eq!(parameters(&json!({"catalog": id})), expected, "{id}");
    }
}

/// A model_type nobody listed: estimated as Llama when its config is a decoder's, with a warning that says so.
#[test]
fn an_unlisted_decoder_is_estimated_as_llama_with_a_warning() {
    let config = |changes: Value| {
        let mut model = decoder("somebodys_decoder", &changes);
        if model["hf"].get("architectures").is_none() {
            model["hf"]["architectures"] = json!(["SomebodysForCausalLM"]);
        }
        model
    };
    let run = Run::new(&scenario(&config(json!({}))).unwrap()).unwrap();
    assert_eq!(run.estimate().parameters.total, parameters(&decoder("llama", &json!({}))));
    let warnings = &run.estimate().warnings;
    assert!(warnings.iter().any(|w| w.contains("somebodys_decoder") && w.contains("llama")), "{warnings:?}");
    let listed = Run::new(&scenario(&decoder("llama", &json!({}))).unwrap()).unwrap();
    assert!(listed.estimate().warnings.is_empty());
    for refused in [
        json!({"architectures": ["SomebodysForMaskedLM"]}),
        json!({"intermediate_size": null}),
        json!({"num_local_experts": 8}),
    ] {
        assert_eq!(refusal(&config(refused)).key, "model.hf.model_type");
    }
}

/// What stands in front of an unusual shape: BLOOM's and GPT-J's own keys, experts, rotary shares.
#[test]
fn decoders_say_which_key_is_wrong() {
    for (model, key) in [
        (decoder("mixtral", &json!({"num_experts_per_tok": 9})), "model.hf.num_experts_per_tok"),
        (decoder("mixtral", &json!({"num_local_experts": 100_000})), "model.hf.num_local_experts"),
        (decoder("qwen3_moe", &json!({"output_router_logits": true})), "model.hf.output_router_logits"),
        (decoder("gpt_neox", &json!({"rotary_pct": 1.5})), "model.hf.rotary_pct"),
        (decoder("phi", &json!({"partial_rotary_factor": 0.4})), "model.hf.partial_rotary_factor"),
        (decoder("gemma2", &json!({"hidden_activation": "softsign"})), "model.hf.hidden_activation"),
        (decoder("gemma3_text", &json!({"use_bidirectional_attention": true})), "model.hf.use_bidirectional_attention"),
        (decoder("opt", &json!({"layerdrop": 0.1})), "model.hf.layerdrop"),
        (json!({"hf": {"model_type": "gptj", "n_embd": 64, "n_head": 4, "rotary_dim": 32}}), "model.hf.rotary_dim"),
        (json!({"hf": {"model_type": "bloom", "hidden_size": 30, "n_head": 4}}), "model.hf.n_head"),
    ] {
        assert_eq!(refusal(&model).key, key, "{model}");
    }
}

/// Each of these keys adds just the parameters its module has.
#[test]
fn keys_of_other_decoders_that_add_parameters() {
    let (h, layers, head, v) = (32u64, 2u64, 8u64, 100u64);
    let more = |family: &str, changes: Value| {
        parameters(&decoder(family, &changes)) - parameters(&decoder(family, &json!({})))
    };
    assert_eq!(more("stablelm", json!({"qk_layernorm": true})), layers * (4 + 2) * head, "a norm for every head");
    assert_eq!(more("stablelm", json!({"use_qkv_bias": true})), layers * (h + 2 * 16));
    assert_eq!(more("phi", json!({"qk_layernorm": true})), layers * 4 * head);
    let gemma = |tied: bool| parameters(&decoder("gemma3_text", &json!({"tie_word_embeddings": tied})));
    assert_eq!(gemma(false) - gemma(true), v * h, "one table less");
    let experts = |n: u64| {
        parameters(&decoder(
            "qwen3_moe",
            &json!({"num_experts": n, "num_experts_per_tok": 1, "moe_intermediate_size": 8}),
        ))
    };
    assert_eq!(experts(5) - experts(4), layers * (3 * h * 8 + h), "an expert and its row of the router");
}

#[test]
fn our_own_families_have_the_sizes_of_their_modules() {
    // Karpathy's 124M, without biases; positions and tokens are tables, the head is tied.
    assert_eq!(parameters(&json!({"family": "nanogpt"})), 124_373_760);
    let (n, layers, vocab, block) = (32u64, 2u64, 100u64, 16u64);
    let keys = |bias: bool| json!({"family": "nanogpt", "n_layer": layers, "n_head": 4, "n_embd": n, "vocab_size": vocab, "block_size": block, "bias": bias});
    let weights = vocab * n + block * n + layers * (12 * n * n + 2 * n) + n;
    let biases = layers * (3 * n + n + 4 * n + n + 2 * n) + n;
    assert_eq!(parameters(&keys(false)), weights);
    assert_eq!(parameters(&keys(true)), weights + biases);

    let mlp = json!({"family": "mlp", "d_in": 6, "hidden": 10, "layers": 3, "d_out": 4});
    assert_eq!(parameters(&mlp), (6 * 10 + 10) + (10 * 10 + 10) + (10 * 4 + 4));
    assert_eq!(parameters(&json!({"family": "mlp", "d_in": 6, "hidden": 10, "layers": 1, "d_out": 4})), 6 * 4 + 4);

    let nbeats =
        json!({"family": "nbeats", "stacks": 2, "layers": 2, "width": 8, "theta": 3, "backcast": 5, "horizon": 4});
    let block = (5 * 8 + 8) + (8 * 8 + 8) + 2 * 8 * 3 + (3 * 5 + 5) + (3 * 4 + 4);
    assert_eq!(parameters(&nbeats), 2 * block);
}

/// A small decoder of `model_type` with these keys changed; `null` takes a key out.
pub fn decoder(model_type: &str, changes: &Value) -> Value {
    let mut config = json!({
        "model_type": model_type, "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "tie_word_embeddings": false
    });
    if let (Some(config), Some(changes)) = (config.as_object_mut(), changes.as_object()) {
        for (key, value) in changes {
            config.insert(key.clone(), value.clone());
        }
    }
    json!({"hf": config})
}

/// What stands in each of these configurations beside the bare matrices.
#[test]
fn keys_that_add_parameters() {
    let (v, h, i, layers, q, kv, head) = (100u64, 32u64, 48u64, 2u64, 32u64, 16u64, 8u64);
    let bare = 2 * v * h + layers * (h * q + 2 * h * kv + q * h + 3 * h * i + 2 * h) + h;
    let count = |family: &str, changes: Value| parameters(&decoder(family, &changes));
    assert_eq!(count("llama", json!({})), bare);
    assert_eq!(count("mistral", json!({})), bare);
    assert_eq!(count("qwen2", json!({})), bare + layers * (q + 2 * kv), "always a bias on q, k and v");
    assert_eq!(count("qwen3", json!({})), bare + layers * 2 * head, "norms of queries and keys");
    assert_eq!(count("llama", json!({"tie_word_embeddings": true})), bare - v * h);
    assert_eq!(count("llama", json!({"attention_bias": true})), bare + layers * (q + 2 * kv + h));
    assert_eq!(count("llama", json!({"mlp_bias": true})), bare + layers * (2 * i + h));
    assert_eq!(count("qwen3", json!({"attention_bias": true})), bare + layers * (2 * head + q + 2 * kv + h));
    // Heads need not add up to the hidden size.
    let wide = 2 * v * h + layers * (h * 64 + 2 * h * 32 + 64 * h + 3 * h * i + 2 * h) + h;
    assert_eq!(count("llama", json!({"head_dim": 16})), wide);
    // All heads have keys of their own when the config does not say.
    assert_eq!(count("llama", json!({"num_key_value_heads": null})), bare + layers * 2 * h * kv);
}

#[test]
fn gpt2s_keys() {
    let gpt2 = |changes: Value| {
        let mut config = json!({"model_type": "gpt2", "vocab_size": 100, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4});
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        parameters(&json!({"hf": config}))
    };
    let (v, n, p, layers) = (100u64, 32u64, 16u64, 2u64);
    let with_inner = |inner: u64| {
        v * n + p * n + layers * (3 * n * n + 3 * n + n * n + n + 2 * n * inner + inner + n + 4 * n) + 2 * n
    };
    assert_eq!(gpt2(json!({})), with_inner(4 * n));
    assert_eq!(gpt2(json!({"n_inner": null})), with_inner(4 * n));
    assert_eq!(gpt2(json!({"n_inner": 50})), with_inner(50));
    assert_eq!(gpt2(json!({"tie_word_embeddings": false})), with_inner(4 * n) + v * n);
}

/// Mistral makes the windowed mask once the sequence is as long as the window (`_ignore_causal_mask_sdpa`); Qwen only
/// with `use_sliding_window`, and only for the layers behind `max_window_layers`.
#[test]
fn a_window_no_longer_than_the_sequence_makes_a_mask() {
    let masks = |model: Value| {
        let text = json!({"model": model, "input": {"batch": 1, "seq": 16}});
        let run = Run::new(&Scenario::from_value(&text).unwrap()).unwrap();
        let ledger = run.ledger();
        // The comparison of the causal mask, once for every mask of a forward; two forwards are run.
        ledger.storages.iter().filter(|s| ledger.op(s) == "le.Tensor").count() / 2
    };
    let mistral = |window: Value| masks(decoder("mistral", &json!({"sliding_window": window})));
    assert_eq!([mistral(json!(8)), mistral(json!(16)), mistral(json!(17)), mistral(Value::Null)], [1, 1, 0, 0]);
    let qwen = |on: bool, first: u64| {
        let keys = json!({"use_sliding_window": on, "sliding_window": 8, "max_window_layers": first});
        masks(decoder("qwen2", &keys))
    };
    assert_eq!([qwen(false, 0), qwen(true, 0), qwen(true, 1), qwen(true, 2)], [0, 1, 1, 0]);
}

/// The numbers torchvision gives with its weights (`num_params` in their metadata).
#[test]
fn torchvisions_models_have_their_published_sizes() {
    for (family, variant, expected) in [
        ("resnet", "resnet18", 11_689_512),
        ("resnet", "resnet34", 21_797_672),
        ("resnet", "resnet50", 25_557_032),
        ("resnet", "resnet101", 44_549_160),
        ("resnet", "resnet152", 60_192_808),
        ("convnext", "convnext_tiny", 28_589_128),
        ("convnext", "convnext_small", 50_223_688),
        ("convnext", "convnext_base", 88_591_464),
        ("convnext", "convnext_large", 197_767_336),
    ] {
        assert_eq!(parameters(&json!({"family": family, "variant": variant})), expected, "{variant}");
    }
}

/// What `sum(p.numel() for p in model.parameters())` says of the base-sized encoders (transformers 5.17).
#[test]
fn encoders_have_their_published_sizes() {
    let hf = |config: Value, task: &str| json!({"hf": config, "task": task});
    let roberta = json!({"model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1});
    for (model, expected) in [
        (hf(json!({"model_type": "bert"}), "masked-lm"), 109_514_298),
        (hf(json!({"model_type": "bert"}), "sequence-classification"), 109_483_778),
        (hf(roberta.clone(), "masked-lm"), 124_697_433),
        (hf(roberta, "sequence-classification"), 124_647_170),
        (hf(json!({"model_type": "distilbert"}), "masked-lm"), 66_985_530),
        (hf(json!({"model_type": "distilbert"}), "sequence-classification"), 66_955_010),
        (hf(json!({"model_type": "vit"}), "image-classification"), 86_567_656),
    ] {
        assert_eq!(parameters_of(&model), expected, "{model}");
    }
}

/// [`parameters`] of a model that says itself what its input is.
fn parameters_of(model: &Value) -> u64 {
    let scenario = Scenario::from_value(&json!({"model": model, "training": {"optimizer": "sgd"}})).unwrap();
    Run::new(&scenario).unwrap().estimate().parameters.total
}

#[test]
fn classifiers_have_as_many_labels_as_the_config_names() {
    let with = |keys: Value| {
        let mut config = json!({"model_type": "bert", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 2, "intermediate_size": 48});
        for (key, value) in keys.as_object().unwrap() {
            config[key] = value.clone();
        }
        json!({"hf": config, "task": "sequence-classification"})
    };
    let two = parameters_of(&with(json!({})));
    assert_eq!(parameters_of(&with(json!({"id2label": {"0": "a", "1": "b", "2": "c"}}))), two + 33);
    assert_eq!(parameters_of(&with(json!({"num_labels": 5}))), two + 3 * 33);
    assert_eq!(refusal(&with(json!({"num_labels": 1}))).key, "model.hf.num_labels");
    let several = refusal(&with(json!({"problem_type": "multi_label_classification"})));
    assert_eq!(several.key, "model.hf.problem_type");
}

#[test]
fn images_must_have_the_side_the_positions_are_for() {
    let scenario = Scenario::from_value(&json!({
        "model": {"hf": {"model_type": "vit", "image_size": 224}}, "input": {"image": 384}
    }));
    assert_eq!(scenario.and_then(|s| Run::new(&s)).unwrap_err().key, "input.image");
}

/// What cuDNN takes inside is not counted, and the estimate says so, unless only tensors are asked for.
#[test]
fn convolutions_come_with_a_warning() {
    let warned = |workspaces: bool| {
        let scenario = Scenario::from_value(&json!({
            "model": {"family": "resnet", "variant": "resnet18"}, "input": {"image": 32},
            "device": {"workspaces": workspaces}
        }));
        Run::new(&scenario.unwrap()).unwrap().estimate().warnings.iter().any(|w| w.contains("cuDNN"))
    };
    assert!(warned(true) && !warned(false));
}
