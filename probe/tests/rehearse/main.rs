//! `plimsoll rehearse`: the real PyTorch on a hollow card.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

mod convolutions;
mod kernels;
mod loops;
mod peaks;
mod truths;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A script's own folder.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("rehearse").join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn rehearse(options: &[&str], command: &[OsString]) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    process.arg("rehearse").args(options).arg("--").args(command);
    process.env_remove("PYTORCH_CUDA_ALLOC_CONF").env_remove("PYTORCH_ALLOC_CONF").env_remove("CUDA_VISIBLE_DEVICES");
    process.output().unwrap()
}

/// Runs a script on a hollow RTX 3060; `None`, in words, where the Python's PyTorch is not for CUDA.
fn script(name: &str, options: &[&str], code: &str) -> Option<(Output, Value)> {
    let python = env::var_os("PLIMSOLL_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let folder = folder(name);
    let (file, out) = (folder.join("train.py"), folder.join("peaks.json"));
    fs::write(&file, code).unwrap();
    let _ = fs::remove_file(&out);
    let options = [&["--gpu", "rtx-3060", "--sms", "28", "--out", out.to_str().unwrap()], options].concat();
    let output = rehearse(&options, &[python, file.into()]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    if message.contains("is not built for CUDA") {
        eprintln!("SKIPPED: {}", message.trim());
        return None;
    }
    let peaks = fs::read(&out).unwrap_or_else(|error| panic!("{error}: {message}"));
    Some((output, serde_json::from_slice(&peaks).unwrap()))
}

/// What the command wrote to standard error and output.
fn said(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stderr).into_owned(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Prints what PyTorch itself says at the end: allocated and reserved.
const TELL: &str = "print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())\n";

const STEP: &str = "\
import torch
assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (8, 6)
assert torch.cuda.get_device_properties(0).multi_processor_count == 28
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    loss = model(torch.randn(64, 1024, device='cuda')).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
assert loss.item() == 0
";
