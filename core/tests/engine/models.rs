//! Models from their configurations: parameter counts, and what is refused.

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
fn decoder(model_type: &str, changes: &Value) -> Value {
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
