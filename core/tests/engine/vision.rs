//! Vision models from their configurations: parameter counts, and what is refused.

use plimsoll_core::estimate::Run;
use plimsoll_core::{Error, Scenario};
use serde_json::{Value, json};

fn run(model: &Value, input: &Value, training: &Value) -> Result<Run, Error> {
    let mut recipe = json!({"optimizer": "sgd"});
    for (key, value) in training.as_object().into_iter().flatten() {
        recipe[key] = value.clone();
    }
    Scenario::from_value(&json!({"model": model, "input": input, "training": recipe})).and_then(|s| Run::new(&s))
}

fn hf(model_type: &str, keys: Value) -> Value {
    let mut config = json!({"model_type": model_type});
    for (key, value) in keys.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    json!({"hf": config})
}

fn parameters(model: &Value) -> u64 {
    run(model, &json!({}), &json!({})).unwrap().estimate().parameters.total
}

fn refusal(model: &Value, input: Value, training: Value) -> String {
    match run(model, &input, &training) {
        Ok(_) => panic!("{model} was accepted"),
        Err(error) => error.key,
    }
}

const SWIN: fn() -> Value = || json!({"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4});

#[test]
fn windows_must_fit_into_the_last_stage() {
    let small = |side: u64| refusal(&hf("swin", SWIN()), json!({"image": side}), json!({}));
    // 12 pixels are 6 patches, 3 in the second stage: fewer than the window's four.
    assert_eq!(small(12), "model.hf.window_size");
    assert!(run(&hf("swin", SWIN()), &json!({"image": 14}), &json!({})).is_ok());
    // Relative positions know no image; absolute ones do.
    let mut absolute = SWIN();
    absolute["use_absolute_embeddings"] = json!(true);
    assert_eq!(refusal(&hf("swin", absolute), json!({"image": 14}), json!({})), "input.image");
}

#[test]
fn what_transformers_cannot_checkpoint_is_refused() {
    let full = || json!({"checkpointing": "full"});
    for model in ["resnet", "convnext"] {
        assert_eq!(refusal(&hf(model, json!({})), json!({}), full()), "training.checkpointing");
    }
    assert!(run(&hf("swin", SWIN()), &json!({}), &full()).is_ok());
    let adapted = json!({"checkpointing": "full", "lora": {"rank": 2, "targets": ["q_proj"]}});
    assert_eq!(refusal(&hf("swin", SWIN()), json!({}), adapted), "training.checkpointing");
}

#[test]
fn sizes_that_contradict_one_another_are_refused_by_key() {
    for (model, key) in [
        (hf("swin", json!({"num_heads": [3, 6]})), "model.hf.num_heads"),
        (hf("swin", json!({"embed_dim": 100})), "model.hf.num_heads"),
        (hf("swin", json!({"mlp_ratio": -1})), "model.hf.mlp_ratio"),
        (hf("swin", json!({"hidden_act": "softsign"})), "model.hf.hidden_act"),
        (hf("resnet", json!({"layer_type": "wide"})), "model.hf.layer_type"),
        (hf("resnet", json!({"hidden_sizes": [64, 128]})), "model.hf.hidden_sizes"),
        (hf("resnet", json!({"hidden_sizes": [2], "depths": [1]})), "model.hf.hidden_sizes"),
        (hf("convnext", json!({"depths": "four"})), "model.hf.depths"),
        (hf("convnext", json!({"drop_path_rate": 1.0})), "model.hf.drop_path_rate"),
    ] {
        assert_eq!(refusal(&model, json!({}), json!({})), key, "{model}");
    }
    assert_eq!(refusal(&hf("convnext", json!({})), json!({"image": 31}), json!({})), "input.image");
}

/// Keys that add parameters add just those of their module.
#[test]
fn keys_that_add_parameters() {
    let swin = |keys: Value| {
        let mut all = SWIN();
        for (key, value) in keys.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        parameters(&hf("swin", all))
    };
    let plain = swin(json!({}));
    assert_eq!(swin(json!({"use_absolute_embeddings": true})) - plain, 16 * 16 * 16);
    assert_eq!(plain - swin(json!({"qkv_bias": false})), 2 * 3 * (16 + 32));
    let convnext = |scale: f64| parameters(&hf("convnext", json!({"layer_scale_init_value": scale})));
    assert_eq!(convnext(1e-6) - convnext(0.0), 3 * 96 + 3 * 192 + 9 * 384 + 3 * 768);
}

/// Small models traced op by op, each an odd corner: `testdata/vision.jsonl` has what PyTorch 2.11, transformers 5.17,
/// torchvision 0.26 and peft 0.21 did on tensors without contents (`FakeTensorMode`, device cuda) in the two steps that a
/// run has here: parameters, allocations, and the highest sum of live storages, each rounded to 512 bytes.
#[test]
fn small_models_allocate_what_pytorch_does() {
    for line in include_str!("testdata/vision.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let (id, expected) = (&row["id"], &row["expected"]);
        let run = Run::new(&Scenario::from_value(&row["scenario"]).unwrap()).unwrap();
        let estimate = run.estimate();
        assert_eq!(json!(estimate.parameters), expected["parameters"], "{id}");
        let births = run.ledger().events.iter().filter(|event| !event.is_free()).count();
        assert_eq!(json!(births), expected["allocations"], "{id}");
        assert_eq!(json!(estimate.peak.requested), expected["peak_requested"], "{id}");
    }
}

/// The numbers torchvision gives with its weights (`num_params` in their metadata).
#[test]
fn torchvisions_other_models_have_their_published_sizes() {
    for (family, variant, expected) in [
        ("resnet", "resnext50_32x4d", 25_028_904),
        ("resnet", "resnext101_32x8d", 88_791_336),
        ("resnet", "resnext101_64x4d", 83_455_272),
        ("resnet", "wide_resnet50_2", 68_883_240),
        ("resnet", "wide_resnet101_2", 126_886_696),
        ("swin", "swin_t", 28_288_354),
        ("swin", "swin_s", 49_606_258),
        ("swin", "swin_b", 87_768_224),
    ] {
        assert_eq!(parameters(&json!({"family": family, "variant": variant})), expected, "{variant}");
    }
}

/// DINOv2's positions are resized to the image; ViT's are not.
#[test]
fn images_of_another_size() {
    let small = json!({"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_ratio": 2,
        "intermediate_size": 64, "image_size": 42, "patch_size": 14});
    assert!(run(&hf("dinov2", small.clone()), &json!({"image": 70}), &json!({})).is_ok());
    assert_eq!(refusal(&hf("dinov2", small.clone()), json!({"image": 13}), json!({})), "input.image");
    assert_eq!(refusal(&hf("vit", small), json!({"image": 70}), json!({})), "input.image");
}
