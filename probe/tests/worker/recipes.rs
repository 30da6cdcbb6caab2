//! Optimizers, adapters, checkpointing.

use plimsoll_core::estimate::Run;
use serde_json::{Value, json};

use super::{job, several};

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn every_optimizer_steps() {
    let all = ["sgd", "sgd-momentum", "adam", "adamw"];
    let each = all.iter().flat_map(|name| ["foreach", "fused", "for-loop"].map(|how| (*name, how)));
    for (name, how) in each.chain([("adafactor", "for-loop")]) {
        let training = json!({ "precision": "fp32", "optimizer": name, "optimizer_impl": how });
        let report = several::train(&job::mlp(json!({ "batch": 4 }), training));
        assert!(report.losses().iter().all(Option::is_some), "{name} {how}: {report:#?}");
        assert_eq!(report.one("hello")["transformers"].is_string(), name == "adafactor");
    }
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn adapters_train_as_many_numbers_as_estimated() {
    let text = json!({ "batch": 2, "seq": 16 });
    for lora in [
        json!({ "rank": 4, "targets": ["q_proj", "v_proj"], "dropout": 0.05 }),
        json!({ "rank": 2, "targets": "all-linear" }),
        json!({ "rank": 2, "dropout": 0.1, "dora": true }),
        json!({ "rank": 2, "targets": ["q_proj"], "modules_to_save": ["embed_tokens", "norm"] }),
    ] {
        for (precision, checkpointing) in [("fp32", "none"), ("bf16", "full")] {
            let training = json!({ "precision": precision, "checkpointing": checkpointing, "lora": lora });
            same_parameters(&job::llama(text.clone(), training));
        }
    }
    let lora = json!({ "lora": { "rank": 2, "targets": "all-linear" } });
    same_parameters(&job::mlp(json!({ "batch": 4 }), lora.clone()));
    let nanogpt = json!({ "family": "nanogpt", "n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 100 });
    same_parameters(&job::parts(nanogpt, text, lora));
    let nbeats = json!({ "family": "nbeats", "stacks": 2, "width": 32 });
    let lora = json!({ "lora": { "rank": 2, "targets": ["tb", "f"] } });
    same_parameters(&job::parts(nbeats, json!({ "batch": 4 }), lora));
}

/// bitsandbytes has kernels for the CPU. Where it is not installed, the refusal says how to get it.
#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn quantized_bases_train() {
    let gpt2 = json!({ "hf": { "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 300 } });
    for (quantization, precision) in [("nf4", "bf16-amp"), ("nf4-double", "bf16"), ("int8", "fp32")] {
        for prepare in [true, false] {
            let training = json!({
                "precision": precision, "quantization": quantization, "prepare_kbit": prepare, "lora": { "rank": 2 },
            });
            trains(&job::parts(gpt2.clone(), json!({ "batch": 2, "seq": 16 }), training));
        }
    }
}

/// A quantized base trains, with as many parameters as estimated.
fn trains(scenario: &plimsoll_core::Scenario) {
    let report = several::train(scenario);
    if let [error] = report.all("error")[..] {
        assert_eq!(error["hint"], "python -m pip install bitsandbytes", "{error}");
        return;
    }
    let estimated = Run::new(scenario).unwrap().into_estimate().parameters;
    assert_eq!(report.one("ready")["parameters"], json!(estimated), "{}", scenario.to_value());
    let losses = report.losses();
    assert!(losses.len() == 2 && losses.iter().all(Option::is_some), "{}: {losses:?}", scenario.to_value());
}

fn same_parameters(scenario: &plimsoll_core::Scenario) {
    let estimated = Run::new(scenario).unwrap().into_estimate().parameters;
    assert!(estimated.trainable < estimated.total / 2);
    let report = several::train(scenario);
    assert_eq!(report.one("ready")["parameters"], json!(estimated), "{}", scenario.to_value());
    assert!(report.one("hello")["peft"].is_string());
    assert!(report.losses().iter().all(Option::is_some));
}

/// Muon and the average need PyTorch alone.
#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn muon_and_the_average_step() {
    let text = json!({ "batch": 2, "seq": 16 });
    for how in ["foreach", "fused", "for-loop"] {
        let training = json!({ "precision": "fp32", "optimizer": "muon", "optimizer_impl": how, "ema": true });
        let report = several::train(&job::llama(text.clone(), training));
        assert!(report.losses().iter().all(Option::is_some), "{how}: {report:#?}");
    }
    // A model of matrices only leaves nothing to AdamW, one of vectors only nothing to Muon.
    let report = several::train(&job::mlp(json!({ "batch": 4 }), json!({ "precision": "fp32", "optimizer": "muon" })));
    assert!(report.losses().iter().all(Option::is_some));
}

/// The same loss, whichever way it is computed.
#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn chunks_and_no_smoothing_change_nothing_in_the_loss() {
    let text = json!({ "batch": 2, "seq": 21 });
    let with = |training: Value| several::train(&job::llama(text.clone(), training)).losses();
    let plain = with(json!({ "precision": "fp32" }));
    let near = |other: &[Option<f64>]| {
        other.len() == plain.len() && other.iter().zip(&plain).all(|(a, b)| (a.unwrap() - b.unwrap()).abs() < 1e-3)
    };
    let chunked = with(json!({ "precision": "fp32", "loss_impl": "chunked", "keep_outputs": true }));
    assert!(near(&chunked), "{chunked:?} {plain:?}");
    let hardly = with(json!({ "precision": "fp32", "label_smoothing": 1e-6 }));
    assert!(near(&hardly), "{hardly:?} {plain:?}");
    let smoothed = with(json!({ "precision": "bf16-amp", "label_smoothing": 0.5 }));
    assert!(smoothed.iter().all(Option::is_some) && smoothed != plain, "{smoothed:?} {plain:?}");
    let own = |p: f64| several::train(&job::mlp(json!({ "batch": 4 }), json!({ "label_smoothing": p }))).losses();
    assert_ne!(own(0.0), own(0.5));
}

/// On a processor inductor writes C++, which computes the same; with the loss outside of it, only the model's body is compiled.
#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn a_compiled_model_learns_as_it_does_otherwise() {
    let with = |training: Value| several::train(&job::llama(json!({ "batch": 2, "seq": 16 }), training)).losses();
    for loss in ["full", "chunked"] {
        let keeps = loss == "chunked";
        let plain = with(json!({ "precision": "fp32", "loss_impl": loss, "keep_outputs": keeps }));
        let compiled = with(json!({ "precision": "fp32", "loss_impl": loss, "keep_outputs": keeps, "compile": true }));
        let near = |(a, b): (&Option<f64>, &Option<f64>)| (a.unwrap() - b.unwrap()).abs() < 1e-3;
        assert!(plain.len() == compiled.len() && plain.iter().zip(&compiled).all(near), "{plain:?} {compiled:?}");
    }
}

/// What needs CUDA, a package that is not there, or is not measured at all.
#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn what_cannot_be_measured_here_is_said() {
    let text = json!({ "batch": 2, "seq": 16 });
    let refused = |training: Value, part: &str| {
        let report = several::refuse(&job::llama(text.clone(), training));
        let (message, hint) = report.refused("unsupported");
        assert!(message.contains(part) && !hint.is_empty(), "{message}");
    };
    refused(json!({ "optimizer": "adamw-8bit" }), "bitsandbytes, which runs on CUDA only");
    refused(json!({ "optimizer": "lion", "optimizer_impl": "fused" }), "bitsandbytes, which runs on CUDA only");
    refused(json!({ "loss_impl": "fused-linear" }), "liger_kernel, which runs on CUDA only");
    refused(json!({ "mode": "inference", "compile": true }), "in training, and on one card");
    refused(json!({ "loss_impl": "chunked", "label_smoothing": 0.1 }), "smooths labels on all logits");
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn checkpointing_and_eager_attention_run() {
    let text = json!({ "batch": 2, "seq": 16 });
    let with = |training: Value| several::train(&job::llama(text.clone(), training)).losses();
    // Recomputing changes nothing in what is computed: same seed, same losses.
    let plain = with(json!({ "precision": "fp32" }));
    assert_eq!(with(json!({ "precision": "fp32", "checkpointing": "full" })), plain);
    let eager = with(json!({ "precision": "fp32", "attention": "eager" }));
    for (one, other) in eager.iter().zip(&plain) {
        assert!((one.unwrap() - other.unwrap()).abs() < 1e-3, "{eager:?} {plain:?}");
    }
}
