//! Every family, small: it trains, and has the parameters the estimate says.

use plimsoll_core::estimate::Run;
use serde_json::{Value, json};

use super::{job, report::Report, several};

/// Two steps; what the engine estimates is compared with what came out.
fn trains(model: Value, input: Value, training: Value) -> Report {
    let scenario = job::parts(model, input, training);
    let report = several::train(&scenario);
    let losses = report.losses();
    assert!(losses.len() == 2 && losses.iter().all(Option::is_some), "{}: {losses:?}", scenario.to_value());
    let parameters = &report.one("ready")["parameters"];
    assert!(parameters["total"].as_u64() >= parameters["trainable"].as_u64(), "{parameters}");
    if scenario.estimated().is_ok() {
        let estimate = Run::new(&scenario).unwrap().into_estimate();
        assert_eq!(*parameters, json!(estimate.parameters), "{}", scenario.to_value());
    }
    report
}

fn config(model_type: &str, more: Value) -> Value {
    let mut config = json!({
        "model_type": model_type, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 300, "max_position_embeddings": 64,
    });
    let (Value::Object(config), Value::Object(more)) = (&mut config, more) else { unreachable!() };
    config.extend(more);
    json!(config)
}

fn hf(task: &str, config: Value) -> Value {
    json!({ "hf": config, "task": task })
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn own_families() {
    let none = json!({});
    trains(json!({ "family": "mlp", "d_in": 24, "hidden": 48, "layers": 3 }), json!({ "batch": 4 }), none.clone());
    let nanogpt = json!({ "family": "nanogpt", "n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 100,
        "block_size": 32, "dropout": 0.1, "bias": true });
    trains(nanogpt, json!({ "batch": 2, "seq": 16 }), none.clone());
    trains(json!({ "family": "nbeats", "stacks": 3, "width": 32 }), json!({ "batch": 8 }), none.clone());
    for precision in ["fp32", "fp16-amp", "bf16"] {
        let gat = json!({ "family": "gat", "n_feat": 40 });
        trains(gat, json!({ "seq": 50 }), json!({ "precision": precision, "optimizer": "sgd" }));
    }
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn torchvision_families() {
    // The counts torchvision's documentation gives for 1000 classes.
    for (family, variant, count) in [
        ("resnet", "resnet18", 11_689_512),
        ("resnet", "resnet50", 25_557_032),
        ("convnext", "convnext_tiny", 28_589_128),
        ("swin", "swin_t", 28_288_354),
    ] {
        let model = json!({ "family": family, "variant": variant });
        let report = trains(model, json!({ "batch": 2, "image": 64 }), json!({ "precision": "bf16-amp" }));
        assert_eq!(report.one("ready")["parameters"]["total"], count, "{variant}");
        assert!(report.one("hello")["torchvision"].is_string());
    }
    let model = json!({ "family": "resnet", "variant": "resnet18", "num_classes": 10 });
    let report = trains(model, json!({ "batch": 2, "image": 64 }), json!({}));
    assert_eq!(report.one("ready")["parameters"]["total"], 11_689_512 - 990 * 513);
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn decoders() {
    let input = |mask: &str| json!({ "batch": 2, "seq": 16, "attention_mask": mask });
    let gpt2 = json!({ "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 300,
        "n_positions": 64 });
    for (config, mask) in [
        (config("llama", json!({ "num_key_value_heads": 2 })), "none"),
        (config("llama", json!({ "tie_word_embeddings": true })), "padded"),
        (config("mistral", json!({ "num_key_value_heads": 2, "sliding_window": 8 })), "ones"),
        (config("qwen2", json!({ "num_key_value_heads": 2 })), "none"),
        (config("qwen3", json!({ "num_key_value_heads": 2, "head_dim": 16 })), "none"),
        (gpt2, "padded"),
        (config("gpt_neox", json!({})), "none"),
        (config("gemma2", json!({ "num_key_value_heads": 2, "head_dim": 16 })), "none"),
        (config("opt", json!({ "ffn_dim": 128, "word_embed_proj_dim": 64 })), "ones"),
        (config("mixtral", json!({ "num_key_value_heads": 2, "num_local_experts": 4 })), "none"),
        (config("falcon", json!({})), "none"),
        (config("falcon", json!({ "new_decoder_architecture": true, "num_kv_heads": 2 })), "padded"),
        (
            config("falcon", json!({ "alibi": true, "bias": true, "multi_query": false, "parallel_attn": false })),
            "ones",
        ),
    ] {
        let report = trains(hf("causal-lm", config), input(mask), json!({ "precision": "bf16-amp" }));
        assert!(report.one("hello")["transformers"].is_string());
        assert_eq!(report.all("step")[0]["tokens"], 32);
    }
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn encoders_and_pairs() {
    let text = |mask: &str| json!({ "batch": 2, "seq": 16, "attention_mask": mask });
    trains(hf("masked-lm", config("bert", json!({}))), text("ones"), json!({}));
    trains(hf("sequence-classification", config("bert", json!({ "num_labels": 3 }))), text("padded"), json!({}));
    // It has no padding token, which a batch of several needs.
    let gpt2 = json!({ "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 300 });
    trains(hf("sequence-classification", gpt2), text("none"), json!({}));
    for (decoder, mask) in [
        (config("llama", json!({ "num_key_value_heads": 2, "pad_token_id": 0, "num_labels": 3 })), "padded"),
        (config("falcon", json!({})), "none"),
        (config("modernbert", json!({ "pad_token_id": 0, "classifier_pooling": "mean" })), "padded"),
    ] {
        trains(hf("sequence-classification", decoder), text(mask), json!({}));
    }
    let deberta = config(
        "deberta-v2",
        json!({ "relative_attention": true, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": true,
            "pos_att_type": "p2c|c2p", "position_biased_input": false, "conv_kernel_size": 3 }),
    );
    // It has no sdpa.
    for task in ["masked-lm", "sequence-classification"] {
        trains(hf(task, deberta.clone()), text("padded"), json!({ "attention": "eager" }));
    }
    let t5 = json!({ "model_type": "t5", "d_model": 64, "d_ff": 128, "d_kv": 16, "num_layers": 2, "num_heads": 4,
        "vocab_size": 300 });
    let pair = json!({ "batch": 2, "seq": 16, "target_seq": 8, "attention_mask": "ones" });
    trains(hf("seq2seq-lm", t5), pair, json!({ "precision": "bf16-amp" }));
    let towers = json!({ "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128 });
    let with = |model_type: &str, more: Value| {
        let mut config = config(model_type, towers.clone());
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    trains(hf("seq2seq-lm", with("bart", json!({}))), text("padded"), json!({}));
    let whisper = with(
        "whisper",
        json!({ "max_source_positions": 50, "max_target_positions": 64, "num_mel_bins": 20, "pad_token_id": 0,
            "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3 }),
    );
    let report = trains(hf("speech-seq2seq", whisper), json!({ "batch": 2, "seq": 16 }), json!({}));
    // Its encoder's positions are fixed.
    let parameters = &report.one("ready")["parameters"];
    assert_eq!(parameters["total"].as_u64().unwrap() - parameters["trainable"].as_u64().unwrap(), 50 * 64);
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn vision_and_contrastive() {
    let tower = |more: Value| {
        let mut config = config("vit", json!({ "image_size": 32, "patch_size": 8 }));
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    let report = trains(hf("image-classification", tower(json!({}))), json!({ "batch": 2 }), json!({}));
    let thousand = report.one("ready")["parameters"]["total"].as_u64().unwrap();
    let ten = tower(json!({ "num_labels": 10 }));
    let report = trains(hf("image-classification", ten), json!({ "batch": 2 }), json!({ "precision": "bf16-amp" }));
    assert_eq!(report.one("ready")["parameters"]["total"], thousand - 990 * 65);
    let stages = |model_type: &str, more: Value| {
        let mut config = json!({ "model_type": model_type, "hidden_sizes": [16, 32], "depths": [1, 2] });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        hf("image-classification", config)
    };
    let half = || json!({ "precision": "bf16-amp" });
    trains(stages("resnet", json!({ "embedding_size": 8 })), json!({ "batch": 2, "image": 40 }), half());
    trains(
        stages("convnext", json!({ "num_stages": 2, "drop_path_rate": 0.1 })),
        json!({ "batch": 2, "image": 40 }),
        half(),
    );
    let swin = stages(
        "swin",
        json!({ "embed_dim": 16, "num_heads": [1, 2], "image_size": 32, "patch_size": 2, "window_size": 4 }),
    );
    for checkpointing in ["none", "full"] {
        trains(swin.clone(), json!({ "batch": 2, "image": 34 }), json!({ "checkpointing": checkpointing }));
    }
    let mut text = config("clip_text_model", json!({ "max_position_embeddings": 12 }));
    let mut vision = tower(json!({ "model_type": "clip_vision_model" }));
    for tower in [&mut text, &mut vision] {
        tower["projection_dim"] = 32.into();
    }
    let clip = json!({ "model_type": "clip", "text_config": text, "vision_config": vision, "projection_dim": 32 });
    trains(hf("contrastive", clip), json!({ "batch": 3, "seq": 16 }), json!({}));
}
