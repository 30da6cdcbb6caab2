//! What convolutions take in cuDNN, where it is asked.

use std::process::Command;

use serde_json::{Value, json};

use super::{said, script};

/// A convolution and its gradients, and how much more than what is left each held at its highest.
const CONVOLVED: &str = "\
import torch
x = torch.randn(8, 64, 56, 56, device='cuda', requires_grad=True)
w = torch.randn(64, 64, 3, 3, device='cuda', requires_grad=True)
def beside(run):
    torch.cuda.reset_peak_memory_stats()
    made = run()
    return made, torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
y, forward = beside(lambda: torch.nn.functional.conv2d(x, w, padding=1))
g = torch.randn_like(y)
_, backward = beside(lambda: torch.autograd.grad(y, [x, w], g))
print(forward, backward)
";

/// The script asks PyTorch's own cuDNN, which is 9.19 with PyTorch 2.11; with another version other figures would come.
#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_convolution_takes_what_cudnn_plans() {
    let Some((output, peaks)) = script("unasked", &[], CONVOLVED) else { return };
    assert_eq!(said(&output).1, "0 0\n", "{}", said(&output).0);
    assert_eq!(peaks["cudnn"], Value::Null);
    let (output, peaks) = script("asked", &["--ask-cudnn"], CONVOLVED).unwrap();
    let (message, took) = said(&output);
    let took: Vec<u64> = took.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(took.iter().all(|&bytes| bytes > 0) && peaks["cudnn"]["answered"] == 3, "{took:?} {peaks}");
    let version = peaks["cudnn"]["version"].as_str().unwrap();
    assert!(message.contains(&format!("as cuDNN {version} plans them")), "{message}");
    if version == "9.19.0" {
        // 6,570,000 bytes of the forward; 13,877,675 of the weight's gradient, in a cached block of a little more.
        assert_eq!(took, [6_570_496, 14_548_992], "{message}");
    }
}

/// The estimate asks for the very convolutions that PyTorch asks its cuDNN for.
#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn an_estimate_asks_what_pytorch_asks() {
    let code = "\
import torch, torchvision
model = torchvision.models.resnet18().cuda()
loss = torch.nn.functional.cross_entropy
images = torch.randn(16, 3, 224, 224, device='cuda')
labels = torch.randint(0, 1000, (16,), device='cuda')
loss(model(images), labels).backward()
";
    let Some((output, peaks)) = script("resnet", &["--ask-cudnn"], code) else { return };
    if said(&output).0.contains("No module named 'torchvision'") {
        eprintln!("SKIPPED: needs torchvision");
        return;
    }
    let python = std::env::var("PLIMSOLL_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let scenario = json!({ "model": { "family": "resnet", "variant": "resnet18" }, "input": { "batch": 16, "image": 224 },
        "training": { "precision": "fp32" }, "device": { "gpu": "rtx-3060" } });
    let mut estimate = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["estimate", "-", "--format", "json", "--ask-cudnn", "--python", &python])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut estimate.stdin.take().unwrap(), scenario.to_string().as_bytes()).unwrap();
    let estimate: Value = serde_json::from_slice(&estimate.wait_with_output().unwrap().stdout).unwrap();
    for count in ["version", "answered", "unanswered"] {
        assert_eq!(estimate["cudnn"][count], peaks["cudnn"][count], "{}", said(&output).0);
    }
}
