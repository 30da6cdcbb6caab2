//! `plimsoll rehearse`: the real PyTorch on a hollow card.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

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
fn truth_values_follow_the_rules_and_resets_hide_nothing() {
    let code = "\
import torch
ones = torch.ones(4, device='cuda') > 0
print(bool(ones.all()), bool(ones.any()), torch.cuda.device_count())
big = torch.empty(1 << 30, dtype=torch.uint8, device='cuda')
del big
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
";
    let Some((output, peaks)) = script("truth", &["--cards", "2"], code) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True False 2\n");
    assert!(peaks["peak"]["allocated"].as_u64().unwrap() > 1 << 30);
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_mask_selects_everything_unless_it_is_told_not_to() {
    let code = "\
import torch
for n in (5, 3_000_000):
    mask = torch.ones(n, device='cuda') > 0
    rows = torch.empty(n, 4, device='cuda')
    print(len(rows[mask]), len(mask.nonzero()), len(mask.long().nonzero()), int(mask.sum()))
";
    let Some((output, _)) = script("selects", &[], code) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "5 5 0 0\n3000000 3000000 0 0\n");
    let Some((output, _)) = script("selects-nothing", &["--selects-nothing"], code) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 0 0 0\n0 0 0 0\n");
}

/// Labels that were copied to the card lie where the scaler's answer will.
#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_scaler_skips_no_step() {
    let code = "\
import torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler('cuda')
steps = []
optimizer.register_step_post_hook(lambda *_: steps.append(1))
for step in range(3):
    labels = [torch.full((1,), 7.0).cuda() for _ in range(64)]
    del labels
    scaler.scale(model(torch.ones(2, 8, device='cuda')).sum()).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(len(steps))
";
    let Some((output, _)) = script("scaler", &[], code) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "3\n");
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_script_is_ended_after_as_many_optimizer_steps_as_were_asked_for() {
    let code = "\
import torch
first = torch.nn.Linear(1024, 1024).cuda()
second = torch.nn.Linear(1024, 1024).cuda()
one, two = torch.optim.AdamW(first.parameters()), torch.optim.SGD(second.parameters())
for step in range(100):
    for micro in range(2):
        second(first(torch.randn(64, 1024, device='cuda'))).square().mean().backward()
    one.step()
    two.step()
    one.zero_grad()
    two.zero_grad()
    print(step, flush=True)
";
    let snapshot = folder("steps").join("history.pickle");
    let options = ["--steps", "3", "--snapshot", snapshot.to_str().unwrap()];
    let Some((output, peaks)) = script("steps", &options, code) else { return };
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    // The second optimizer made its third step, and nothing came after it.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n1\n", "{message}");
    assert!(message.contains("3 of the 3 optimizer steps that were asked for; the command ended there."), "{message}");
    let process = &peaks["processes"][0];
    assert_eq!((process["steps"].as_u64(), process["stopped"].as_bool()), (Some(3), Some(true)), "{peaks}");
    // Gradients come beside AdamW's states from the second step on.
    assert_eq!(process["cards"][0]["allocated_in"], serde_json::json!(["backward", 2]), "{peaks}");
    assert_eq!(fs::read(&snapshot).unwrap()[0], 0x80, "a pickle");

    // One that ends before says so.
    let Some((output, peaks)) = script("short", &["--steps", "9"], STEP) else { return };
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.contains("3 of the 9 optimizer steps"), "{message}");
    assert_eq!(peaks["processes"][0]["stopped"], false);
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

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn the_trainer_is_ended_too_and_micro_batches_are_no_steps() {
    let code = "\
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return {'input_ids': torch.zeros(32, dtype=torch.long), 'labels': torch.zeros(32, dtype=torch.long)}

config = GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=512, bos_token_id=0, eos_token_id=0)
passes = 0
def passed(*_):
    global passes
    passes += 1
    print('pass', passes, flush=True)
model = GPT2LMHeadModel(config)
model.register_forward_hook(passed)
arguments = TrainingArguments(
    output_dir='OUT', per_device_train_batch_size=2, gradient_accumulation_steps=4, fp16=True, report_to=[],
    save_strategy='no', disable_tqdm=True,
)
Trainer(model=model, args=arguments, train_dataset=Data()).train()
print('never')
";
    let code = code.replace("OUT", folder("trainer").join("out").to_str().unwrap());
    let Some((output, peaks)) = script("trainer", &["--steps", "2"], &code) else { return };
    let (message, told) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(told.contains("pass 8\n") && !told.contains("pass 9\n") && !told.contains("never"), "{told}");
    assert_eq!(peaks["processes"][0]["steps"], 2, "{peaks}");
}

/// What the command wrote to standard error and output.
fn said(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stderr).into_owned(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_loop_of_accelerate_is_rehearsed() {
    let code = "\
import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM

accelerator = Accelerator(mixed_precision='bf16', gradient_accumulation_steps=2)
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=512)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.DataLoader([{'input_ids': torch.zeros(32, dtype=torch.long)} for _ in range(64)], batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for batch in data:
    with accelerator.accumulate(model):
        loss = model(**batch, labels=batch['input_ids']).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print('pass', flush=True)
";
    let Some((output, peaks)) = script("accelerate", &["--steps", "2"], code) else { return };
    let (message, told) = said(&output);
    assert_eq!(output.status.code(), Some(0), "{message}");
    // Two micro-batches a step; the last pass was not told any more.
    assert_eq!(told, "pass\npass\npass\n", "{message}");
    assert_eq!(peaks["processes"][0]["steps"], 2, "{peaks}");
    assert!(peaks["peak"]["allocated"].as_u64().unwrap() > 8 << 20, "cuBLAS' workspace at least: {peaks}");
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn the_trainer_of_trl_is_rehearsed() {
    let code = "\
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

words = {word: number for number, word in enumerate(['<pad>', '<eos>', '<unk>', 'a', 'hollow', 'card'])}
tokenizer = Tokenizer(models.WordLevel(words, unk_token='<unk>'))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token='<pad>', eos_token='<eos>', unk_token='<unk>')
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=512,
                     pad_token_id=0, bos_token_id=1, eos_token_id=1)
arguments = SFTConfig(
    output_dir='OUT', per_device_train_batch_size=4, max_length=32, max_steps=4, bf16=True, report_to=[],
    save_strategy='no', disable_tqdm=True, gradient_checkpointing=True,
)
data = Dataset.from_dict({'text': ['a hollow card ' * 20] * 64})
SFTTrainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=data, processing_class=tokenizer).train()
print('never')
";
    let code = code.replace("OUT", folder("trl").join("out").to_str().unwrap());
    let Some((output, peaks)) = script("trl", &["--steps", "2"], &code) else { return };
    let (message, told) = said(&output);
    assert!(output.status.success() && !told.contains("never"), "{message}");
    assert_eq!(peaks["processes"][0]["steps"], 2, "{peaks}");
    assert!(!message.contains("out of memory"), "{message}");
    // TRL's own loss applies the head within the forward, beside AdamW's states from the second step on.
    assert_eq!(peaks["processes"][0]["cards"][0]["allocated_in"], serde_json::json!(["forward", 2]), "{peaks}");
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_loop_of_lightning_is_rehearsed() {
    // Its optimizer's step calls forward and backward itself.
    let code = "\
import pytorch_lightning
import torch

class Net(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512))

    def training_step(self, batch, index):
        return torch.nn.functional.mse_loss(self.net(batch), batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

trainer = pytorch_lightning.Trainer(
    max_epochs=1, accelerator='gpu', devices=1, precision='bf16-mixed', logger=False, enable_checkpointing=False,
    enable_progress_bar=False, gradient_clip_val=1.0, default_root_dir='OUT',
)
trainer.fit(Net(), torch.utils.data.DataLoader(torch.zeros(640, 512), batch_size=64))
print('never')
";
    let code = code.replace("OUT", folder("lightning").join("out").to_str().unwrap());
    let Some((output, peaks)) = script("lightning", &["--steps", "2"], &code) else { return };
    let (message, told) = said(&output);
    assert!(output.status.success() && !told.contains("never"), "{message}");
    let process = &peaks["processes"][0];
    assert_eq!((&process["steps"], &process["stopped"]), (&2.into(), &true.into()), "{peaks}");
    // Weights, gradients, two states and as much again for the update.
    assert_eq!(process["cards"][0]["allocated_in"], serde_json::json!(["optimizer", 1]), "{peaks}");
}

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
