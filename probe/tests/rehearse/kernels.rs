//! Kernels that are written while a script runs.

use serde_json::Value;

use super::{TELL, folder, said, script};

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_compiled_model_is_rehearsed() {
    let code = "\
import os
os.environ.update(TORCHINDUCTOR_COMPILE_THREADS='1', TORCHINDUCTOR_CACHE_DIR='OUT')
import torch
model = torch.nn.Sequential(
    torch.nn.Linear(512, 512), torch.nn.Tanh(), torch.nn.SiLU(), torch.nn.Sigmoid(), torch.nn.GELU()).cuda()
optimizer = torch.optim.AdamW(model.parameters())
step = torch.compile(model) if COMPILED else model
for _ in range(3):
    step(torch.randn(4096, 512, device='cuda')).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
";
    let code = code.replace("OUT", folder("compiled").join("cache").to_str().unwrap());
    let run = |compiled: &str| script("compiled", &[], &format!("{}{TELL}", code.replace("COMPILED", compiled)));
    let Some((eager, before)) = run("False") else { return };
    let (compiled, after) = run("True").unwrap();
    for (output, peaks) in [(&eager, &before), (&compiled, &after)] {
        let told = format!("{} {}\n", peaks["peak"]["allocated"], peaks["peak"]["reserved"]);
        assert_eq!(said(output).1, told, "{}", said(output).0);
    }
    // The compiled one computes some of the four functions again, in one kernel of its backward: it keeps one result of 8 MiB less.
    let allocated = |peaks: &Value| peaks["peak"]["allocated"].as_u64().unwrap();
    assert!(allocated(&after) + (8 << 20) <= allocated(&before), "{after} {before}");
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn kernels_of_liger_are_rehearsed() {
    let code = "\
import torch
from transformers import LlamaConfig, LlamaForCausalLM
if FUSED:
    from liger_kernel.transformers import apply_liger_kernel_to_llama
    apply_liger_kernel_to_llama()
config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=32000)
model = LlamaForCausalLM(config).to('cuda', torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.zeros(4, 256, dtype=torch.long, device='cuda')
for _ in range(2):
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
";
    let run = |fused: &str| script("liger", &[], &format!("{}{TELL}", code.replace("FUSED", fused)));
    let Some((_, plain)) = run("False") else { return };
    let (output, fused) = run("True").unwrap();
    let told = format!("{} {}\n", fused["peak"]["allocated"], fused["peak"]["reserved"]);
    assert_eq!(said(&output).1, told, "{}", said(&output).0);
    // The logits of 1024 tokens over 32,000 words are never whole: 62.5 MiB in 16 bits, and in float32 twice that, several times over.
    let allocated = |peaks: &Value| peaks["peak"]["allocated"].as_u64().unwrap();
    assert!(allocated(&fused) + (250 << 20) < allocated(&plain), "{fused} {plain}");
}
