//! `plimsoll trace` as it is: what it records of a small model is what PyTorch does.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::process;

/// A model of two blocks, the same with PyTorch's checkpointing built in, and one that cannot be recorded.
const MODELS: &str = include_str!("recorder_models.py");

/// The same step in a script, on a card that is not there.
const SCRIPT: &str = "
import sys
import torch, plimsoll
import torch.nn.functional as F
from models import Net

def train(net, device, width):
    optimizer = torch.optim.AdamW(net.parameters())
    rows = torch.utils.data.TensorDataset(torch.randn(8, width), torch.randint(10, (8,)))
    for x, y in torch.utils.data.DataLoader(rows, batch_size=4, pin_memory=True):
        x, y = x.to(device), y.cuda()
        optimizer.zero_grad()
        with plimsoll.trace('net', x='B,64'):
            with torch.autocast('cuda', dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            raise SystemExit('this is the loop')

if __name__ == '__main__':
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    train(torch.compile(Net().cuda()), device, int(sys.argv[1]))
";

fn trace(folder: &Path, model: &str, out: &str) -> Output {
    let model = format!("models.py:{model}");
    let asked = [&model, "--input", "x=float32[B,64]", "--input", "y=int64[B]", "--precision", "fp32,bf16-amp"];
    traced(folder, &asked, out)
}

fn traced(folder: &Path, asked: &[&str], out: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.current_dir(folder).args(["trace", "--gpu", "h200", "-o", out]);
    command.arg("--python").arg(process::ready_program());
    command.args(asked).output().unwrap()
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

/// What asks its numbers whether they are any is told that they are, and the numbers of `x % 2` are tensors for C++.
#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn a_model_that_is_careful_with_its_numbers_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("models.py"), MODELS).unwrap();
    let traced = trace(folder, "Careful", "careful.hull");
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    let training = json!({ "precision": "fp32" });
    assert!(estimate(folder, "careful.hull", training).iter().all(|(peak, end)| *peak > 0 && end <= peak));
}

#[test]
#[ignore = "needs PyTorch and peft, see CONTRIBUTING.md"]
fn adapters_that_are_recorded_as_well_are_those_of_a_model_that_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("models.py"), MODELS).unwrap();
    let plain = trace(folder, "adapted", "adapted.hull");
    assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stderr));
    let with = |also: &str, out: &str| {
        let asked = ["models.py:Net", "--input", "x=float32[B,64]", "--input", "y=int64[B]", "--also", also];
        traced(folder, &asked, out)
    };
    let also = with("lora=4:a,head", "also.hull");
    assert!(also.status.success(), "{}", String::from_utf8_lossy(&also.stderr));
    for precision in ["fp32", "bf16-amp"] {
        let training = |lora: Value| json!({ "precision": precision, "accumulation": 2, "lora": lora });
        let adapters = json!({ "rank": 4, "targets": ["a", "head"] });
        let whole = estimate(folder, "also.hull", training(Value::Null));
        assert_ne!(estimate(folder, "also.hull", training(adapters.clone())), whole);
        assert_eq!(
            estimate(folder, "also.hull", training(adapters)),
            estimate(folder, "adapted.hull", training(Value::Null))
        );
    }
    for (also, why) in
        [("lora=4:nothing", "linear ones are called here a, b, head"), ("attention=eager", "MODULE:CALLABLE")]
    {
        let refused = with(also, "none.hull");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why) && !said.contains("Recording"), "{said}");
    }
}

#[test]
#[ignore = "needs PyTorch 2.11 with Triton, see CONTRIBUTING.md"]
fn what_torch_compile_makes_is_recorded_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("models.py"), MODELS).unwrap();
    let with = |model: &str, out: &str| {
        let inputs = ["--input", "x=float32[B,64]", "--input", "y=int64[B]", "--also", "compile"];
        traced(folder, &[&[model, "--precision", "fp32"], &inputs[..]].concat(), out)
    };
    let recorded = with("models.py:Net", "compiled.hull");
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let peak = |compile: bool| {
        let phases = estimate(folder, "compiled.hull", json!({ "precision": "fp32", "compile": compile }));
        phases.into_iter().map(|(peak, _)| peak).max()
    };
    assert_ne!(peak(true), peak(false));
    let broken = with("models.py:Broken", "none.hull");
    let said = String::from_utf8_lossy(&broken.stderr);
    assert!(!broken.status.success() && said.contains("broken into parts") && said.contains("graph_break"), "{said}");
}

#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn blocks_that_repeat_are_recorded_once_where_the_model_runs_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("models.py"), MODELS).unwrap();
    let recorded = |model: &str, out: &str| {
        let traced = trace(folder, model, out);
        let said = String::from_utf8_lossy(&traced.stderr).into_owned();
        assert!(traced.status.success() && said.contains("shortened"), "{said}");
        let peaks =
            |checkpointing: &str| estimate(folder, out, json!({ "precision": "fp32", "checkpointing": checkpointing }));
        (said, peaks("none"), peaks("full"))
    };
    let short = recorded("Deep(False)", "short.hull");
    let whole = recorded("Deep(True)", "whole.hull");
    assert!(!short.0.contains("one and all") && whole.0.contains("one and all"), "{}", whole.0);
    assert_eq!((short.1, short.2), (whole.1, whole.2));
}

/// A forward may ask for a gradient itself, and what that was made of is kept for the backward through it.
#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn a_penalty_on_a_gradient_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("models.py"), MODELS).unwrap();
    let peak = |model: &str, out: &str| {
        let traced = trace(folder, model, out);
        assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
        let peaks = ["fp32", "bf16-amp"].map(|precision| estimate(folder, out, json!({ "precision": precision })));
        peaks.map(|phases| phases.iter().map(|(peak, _)| *peak).max())
    };
    let (without, with) = (peak("Penalised(False)", "without.hull"), peak("Penalised(True)", "with.hull"));
    assert!(with.iter().zip(&without).all(|(with, without)| with > without), "{with:?} {without:?}");
}

/// CTC keeps a row for every step of every sample, two places for each sign and one more: in numbers that it is told, or as long as targets may
/// be. Of targets in one row only data says so.
#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn ctc_is_recorded_where_its_sizes_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("models.py"), MODELS).unwrap();
    let heard = |targets: &str, signs: &str, out: &str| {
        let loss = format!("F.ctc_loss(*model(x, y), torch.full((x.size(1),), 50), {signs})");
        let asked = ["models.py:Heard", "--input", "x=float32[50,B,64]", "--input", targets, "--input", "t=int64[B]"];
        traced(folder, &[&asked[..], &["--loss", &loss, "--precision", "fp32"]].concat(), out)
    };
    let (rows, given) = (
        heard("y=int64[B,20]", "t", "rows.hull"),
        heard("y=int64[B,20]", "torch.full((x.size(1),), 20)", "given.hull"),
    );
    for traced in [&rows, &given] {
        assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    }
    let phases = |hull: &str| estimate(folder, hull, json!({ "precision": "fp32" }));
    assert_eq!(phases("rows.hull"), phases("given.hull"));
    for (targets, why) in [("y=int64[160]", "int64[B,40]"), ("y=int32[160]", "cuDNN's CTC")] {
        let refused = heard(targets, "t", "none.hull");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
}

/// What an operator makes on its way is as large as what it is given, and gone behind it. A parameter whose contents are set, and words
/// in clusters, are no end.
#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn what_operators_make_on_their_way_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("models.py"), MODELS).unwrap();
    let phases = |how: &str| {
        let traced = trace(folder, &format!("Inside('{how}')"), "inside.hull");
        assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
        estimate(folder, "inside.hull", json!({ "precision": "fp32" }))
    };
    let forward = |how: &str| phases(how)[2].0;
    let plain = forward("plain");
    let given = 7000 * 512 * 4;
    // How far each is from the largest of its row, and what random numbers have divided.
    for how in ["logsumexp", "multinomial"] {
        assert!(forward(how) > plain + given / 2, "{how}");
    }
    phases("contents");
    phases("clusters");
}

/// Of what only data could leave out nothing is left out, or as much as is answered; what a mask shows that follows from sizes is no
/// question.
#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn what_a_mask_selects_is_all_of_it_or_what_is_answered_or_what_it_shows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("models.py"), MODELS).unwrap();
    let peak = |how: &str, answer: Option<&str>| {
        let model = format!("models.py:Masked('{how}')");
        let mut asked =
            vec![&*model, "--input", "x=float32[B,16,8]", "--input", "m=bool[B,16]", "--loss", "model(x, m)"];
        asked.extend(["--precision", "fp32"]);
        asked.extend(answer.iter().flat_map(|answer| ["--answer", answer]));
        let traced = traced(folder, &asked, "masked.hull");
        let said = String::from_utf8_lossy(&traced.stderr);
        assert!(traced.status.success(), "{said}");
        // The peaks of all phases together.
        let phases = estimate(folder, "masked.hull", json!({ "precision": "fp32" }));
        let asks = said.contains("Masked.forward asked how many elements a mask selects");
        (phases.iter().map(|(peak, _)| *peak).sum::<u64>(), asks)
    };
    let (all, asks) = peak("input", None);
    assert!(asks);
    assert_eq!(peak("input", Some("Masked.forward=1.0")), (all, true));
    assert!(peak("input", Some("Masked.forward=0.25")).0 < all);
    let (written, asks) = peak("written", None);
    assert!(asks && written > all);
    let (shown, asks) = peak("shown", None);
    assert!(!asks);
    let (made, asks) = peak("made", None);
    assert!(!asks && made.abs_diff(shown) < 8192, "{made} {shown}");
    // The same numbers, of which no mask was made: pairs of 120 of the 16 x 16.
    let rows = peak("rows", None).0;
    assert!(rows.abs_diff(shown) < 8192, "{rows} {shown}");
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

#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn marked_lines_of_a_script_are_recorded_as_the_model_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("models.py"), MODELS).unwrap();
    std::fs::write(folder.join("train.py"), SCRIPT).unwrap();
    let plain = trace(folder, "Net", "plain.hull");
    assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stderr));
    let marked = ["train.py", "--", "64"];
    let script = traced(folder, &marked, "script.hull");
    assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
    for checkpointing in ["none", "full"] {
        let training = || json!({ "precision": "bf16-amp", "accumulation": 2, "checkpointing": checkpointing });
        assert_eq!(estimate(folder, "script.hull", training()), estimate(folder, "plain.hull", training()));
    }
    // It trains in one precision, and its names of axes must fit.
    let other = traced(folder, &["train.py", "--precision", "fp32", "--", "64"], "none.hull");
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && said.contains("--precision bf16-amp"), "{said}");
    std::fs::write(folder.join("train.py"), SCRIPT.replace("B,64", "B")).unwrap();
    let other = traced(folder, &marked, "none.hull");
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && said.contains("2 dimensions"), "{said}");
    std::fs::write(folder.join("train.py"), "raise SystemExit(9)\n").unwrap();
    for (script, why) in [("train.py", "no lines of train.py are marked"), ("away.py", "there is no file away.py")] {
        let other = traced(folder, &[script], "none.hull");
        let said = String::from_utf8_lossy(&other.stderr);
        assert!(!other.status.success() && said.contains(why), "{said}");
    }
}

#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn what_chance_decides_leaves_nothing_out_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("models.py"), MODELS).unwrap();
    let mut came = Vec::new();
    for (model, out) in [("Dropping(0.5)", "half.hull"), ("Dropping(0.0)", "none.hull")] {
        let traced = trace(folder, model, out);
        let said = String::from_utf8_lossy(&traced.stderr);
        assert!(traced.status.success() && said.contains("Dropping.forward"), "{said}");
        came.push(estimate(folder, out, json!({ "precision": "fp32" })));
    }
    assert_eq!(came[0], came[1]);
}

#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn recurrent_layers_are_recorded_as_they_train_without_cudnn() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("models.py"), MODELS).unwrap();
    for kind in ["LSTM", "GRU"] {
        let traced = trace(folder.path(), &format!("Recurrent(nn.{kind}, False)"), "recurrent.hull");
        assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    }
}

#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn what_is_written_through_views_and_made_empty_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("models.py"), MODELS).unwrap();
    let traced = trace(folder.path(), "Windows", "windows.hull");
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
}

#[test]
#[ignore = "needs PyTorch, see CONTRIBUTING.md"]
fn a_buffer_that_another_is_put_in_place_of_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("models.py"), MODELS).unwrap();
    let mut came = Vec::new();
    for (rows, out) in [("2", "small.hull"), ("65536", "large.hull")] {
        let traced = trace(folder.path(), &format!("Placed({rows})"), out);
        assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
        came.push(estimate(folder.path(), out, json!({ "precision": "fp32" })));
    }
    let ends = |of: fn(&[(u64, u64)]) -> u64| (of(&came[0]), of(&came[1]));
    let (first, last) = (ends(|phases| phases[0].1), ends(|phases| phases[phases.len() - 1].1));
    assert_eq!(first.1 - first.0, 65534 * 64 * 4);
    assert_eq!(last.0, last.1);
}
