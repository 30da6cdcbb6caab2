//! Peaks that are PyTorch's own.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{STEP, TELL, folder, script};

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_training_step_has_pytorchs_own_peaks() {
    for allocator in ["", "expandable_segments:True", "backend:cudaMallocAsync"] {
        let set = format!("import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = '{allocator}'\n");
        let Some((output, peaks)) = script("step", &[], &format!("{set}{STEP}{TELL}")) else { return };
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let told = format!("{} {}\n", peaks["peak"]["allocated"], peaks["peak"]["reserved"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), told, "{allocator}");
        // Weights, gradients, two states and as much again for the update, 4 MiB each, and 8 MiB of workspaces.
        assert!((20 << 20..64 << 20).contains(&peaks["peak"]["allocated"].as_u64().unwrap()), "{told}");
    }
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn memory_runs_out_as_on_a_card_and_the_exit_code_says_so() {
    let code = "import torch\nx = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda') for _ in range(40)]\n";
    let Some((output, peaks)) = script("full", &["--memory", "8 GiB"], code) else { return };
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("OutOfMemoryError") && message.contains("total capacity of 8.00 GiB"), "{message}");
    assert_eq!(peaks["peak"]["allocated"], 7u64 << 30);
    assert_eq!(peaks["out_of_memory"], true);
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn where_in_the_loop_memory_ran_out_is_told() {
    let code = "\
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(8, 8192, device='cuda')).sum().backward()
optimizer.step()
";
    // Weights and gradients take 1 GiB each, the states two more.
    let Some((output, _)) = script("states", &["--memory", "3 GiB", "--steps", "2"], code) else { return };
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("OutOfMemoryError") && message.contains("in _init_group"), "{message}");
    assert!(message.contains("time(s), at the end in the optimizer of step 1"), "{message}");
    assert!(
        message.contains("0 of the 2 optimizer steps that were asked for; the command ended by itself."),
        "{message}"
    );
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn the_history_is_a_ledger_and_how_deep_it_sits_is_told_while_it_runs() {
    // Everything is let go of before Python ends, and what was there is told all the same.
    let code = "\
import time, torch
def main():
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        model(torch.randn(512, 1024, device='cuda')).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(1.5)
main()
";
    let file = folder("ledger").join("run.json.gz");
    let _ = fs::remove_file(&file);
    let options = ["--live", "--ledger", file.to_str().unwrap()];
    let Some((output, peaks)) = script("ledger", &options, code) else { return };
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    let live =
        message.lines().find(|line| line.contains(", card 0: allocated ")).unwrap_or_else(|| panic!("{message}"));
    assert!(live.contains(" of 11.00 GiB, ") && live.contains("process "), "{live}");
    assert!(peaks["processes"][0]["cards"][0]["marks"].is_null(), "{peaks}");

    let mut inspect = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let told = inspect.args(["inspect", "--format", "json"]).arg(&file).output().unwrap();
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    // Replayed, it is what PyTorch itself counted.
    for figure in ["allocated", "reserved"] {
        assert_eq!(told["peak"][figure], peaks["peak"][figure], "{figure}: {told}");
    }
    let at = &told["at_peak"];
    // Two matrices of 16 MiB with their vectors, and two states of each. What cuBLAS and cuBLASLt keep came with the first forward and
    // stays, as weights do.
    let weights = 4 * (2 * 1024 * 4096 + 4096 + 1024);
    let libraries = (8 << 20) + (128 << 10) + (1 << 20);
    assert_eq!(at["weights"], weights + libraries, "{told}");
    assert_eq!(at["optimizer_states"], 2 * weights, "{told}");
    let steps: Vec<u64> = told["phases"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|p| p["name"] == "optimizer")
        .map(|p| p["step"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, [1, 2, 3]);
}
