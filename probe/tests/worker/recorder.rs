//! `plimsoll trace` as it is: what it records of a small model is what PyTorch does.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// A model of two blocks, the same with PyTorch's checkpointing built in, and one that cannot be recorded.
const MODELS: &str = "
import torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 256), nn.Linear(256, 64)
    def forward(self, x):
        return x + self.b(torch.nn.functional.gelu(self.a(x)))

class Net(nn.Module):
    def __init__(self, checkpointed=()):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.head = nn.Linear(64, 10)
        for index in checkpointed:
            block = self.blocks[index]
            block.forward = self.within(block.forward)
    def within(self, forward):
        return lambda x: checkpoint(forward, x, use_reentrant=False, preserve_rng_state=False)
    def forward(self, x):
        return self.head(self.blocks(x))

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(64, 10)
    def forward(self, x):
        return self.rnn(x)[0]
";

fn trace(folder: &Path, model: &str, out: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.current_dir(folder).args(["trace", &format!("models.py:{model}"), "--input", "x=float32[B,64]"]);
    command.args(["--input", "y=int64[B]", "--precision", "fp32,bf16-amp", "--gpu", "h200", "-o", out]);
    if let Some(python) = std::env::var_os("PLIMSOLL_TEST_PYTHON") {
        command.arg("--python").arg(python);
    }
    command.output().unwrap()
}

/// Peak and end of every phase.
fn estimate(folder: &Path, hull: &str, training: Value) -> Vec<(u64, u64)> {
    let asked = json!({
        "model": { "hull": hull }, "input": { "batch": 7000 }, "training": training, "device": { "gpu": "h200" },
    });
    let file = folder.join("asked.json");
    std::fs::write(&file, asked.to_string()).unwrap();
    let answer = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["estimate", "--format", "json"])
        .arg(&file)
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&answer.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&answer.stderr)));
    let phases = answer["phases"].as_array().unwrap().iter();
    phases.map(|p| (p["peak_requested"].as_u64().unwrap(), p["end_requested"].as_u64().unwrap())).collect()
}

#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn checkpointing_of_a_recording_is_what_a_checkpointed_model_is_recorded_as() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("models.py"), MODELS).unwrap();
    for (model, out) in [("Net", "plain.hull"), ("Net([0, 1, 2])", "all.hull"), ("Net([1])", "one.hull")] {
        let traced = trace(folder, model, out);
        assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    }
    for precision in ["fp32", "bf16-amp"] {
        let plain = |more: Value| {
            let mut training = json!({ "precision": precision, "accumulation": 2 });
            training.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            training
        };
        let without = estimate(folder, "plain.hull", plain(json!({})));
        let all = estimate(folder, "all.hull", plain(json!({})));
        assert_ne!(without, all);
        assert_eq!(estimate(folder, "plain.hull", plain(json!({ "checkpointing": "full" }))), all);
        let named = json!({ "checkpointing": "full", "checkpoint_modules": ["blocks.1"] });
        assert_eq!(
            estimate(folder, "plain.hull", plain(named)),
            estimate(folder, "one.hull", plain(json!({}))),
            "{precision}"
        );
    }
}

#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn what_needs_a_driver_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("models.py"), MODELS).unwrap();
    let traced = trace(folder.path(), "Recurrent", "none.hull");
    let said = String::from_utf8_lossy(&traced.stderr);
    assert!(!traced.status.success() && said.contains("nn.LSTM") && said.contains("LSTMCell"), "{said}");
    assert!(!folder.path().join("none.hull").exists());
}
