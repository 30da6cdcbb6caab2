//! Loops that a scenario can name, run by the real PyTorch on a hollow card: its peaks are the estimate's, to the byte.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const CARD: &str = "rtx-3060";

/// A test's own folder, empty.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("loops").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The peaks of a command that Python runs on a hollow card; `None`, in words, where its PyTorch is not for CUDA.
fn rehearsed(folder: &Path, arguments: &[&str]) -> Option<Value> {
    let python = env::var_os("PLIMSOLL_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let out = folder.join("peaks.json");
    let mut process = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    process.current_dir(folder).args(["rehearse", "--gpu", CARD, "--out"]).arg(&out).arg("--");
    process.args([&[python], &arguments.iter().map(OsString::from).collect::<Vec<_>>()[..]].concat());
    process.env("HF_HUB_OFFLINE", "1").env("HF_HOME", folder.join("hf"));
    process.env_remove("PYTORCH_CUDA_ALLOC_CONF").env_remove("PYTORCH_ALLOC_CONF").env_remove("CUDA_VISIBLE_DEVICES");
    let output = process.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    if message.contains("is not built for CUDA") {
        eprintln!("SKIPPED: {}", message.trim());
        return None;
    }
    assert!(output.status.success(), "{message}");
    Some(serde_json::from_slice(&fs::read(&out).unwrap()).unwrap())
}

/// The peak that is estimated of a scenario.
fn estimated(scenario: &Value) -> Value {
    let mut process = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    process.args(["estimate", "-", "--format", "json"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = process.spawn().unwrap();
    child.stdin.take().unwrap().write_all(scenario.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["peak"].clone()
}

fn compare(what: &str, scenario: &Value, peaks: &Value) {
    let estimate = estimated(scenario);
    for figure in ["allocated", "reserved"] {
        assert_eq!(estimate[figure], peaks["peak"][figure], "{figure}, {what}: {estimate} {peaks}");
    }
}

/// What `run_clm.py` of transformers' examples does: rows of one length with a mask of ones and their own labels.
const TRAINER: &str = "\
import json, sys, transformers
given, lora = json.loads(sys.argv[1]), json.loads(sys.argv[2])
config = transformers.LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                                  num_key_value_heads=2, vocab_size=4000)
model = transformers.LlamaForCausalLM(config)
if lora:
    import peft
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=['q_proj', 'v_proj']))
row = {'input_ids': list(range(128)), 'attention_mask': [1] * 128, 'labels': list(range(128))}
arguments = transformers.TrainingArguments(
    output_dir='out', per_device_train_batch_size=2, max_steps=3, report_to=[], save_strategy='no', disable_tqdm=True, **given)
transformers.Trainer(model=model, args=arguments, train_dataset=[row] * 64,
                     data_collator=transformers.default_data_collator).train()
";

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn the_trainers_peaks_are_the_estimates() {
    let lora = json!({ "rank": 8, "targets": ["q_proj", "v_proj"] });
    let runs = [
        ("fp32", json!({ "gradient_accumulation_steps": 3 }), json!({ "precision": "fp32", "accumulation": 3 })),
        (
            "bf16, checkpointed",
            json!({ "bf16": true, "gradient_checkpointing": true, "gradient_accumulation_steps": 2 }),
            json!({ "precision": "bf16-amp", "checkpointing": "full", "accumulation": 2 }),
        ),
        (
            "fp16, nothing clipped",
            json!({ "fp16": true, "max_grad_norm": 0 }),
            json!({ "precision": "fp16-amp", "clip_grad_norm": false }),
        ),
        (
            "adapters",
            json!({ "bf16": true, "gradient_accumulation_steps": 4 }),
            json!({ "precision": "bf16-amp", "accumulation": 4, "lora": lora }),
        ),
    ];
    let folder = folder("trainer");
    fs::write(folder.join("train.py"), TRAINER).unwrap();
    for (what, given, training) in runs {
        let adapters = (!training["lora"].is_null()).to_string();
        let Some(peaks) = rehearsed(&folder, &["train.py", &given.to_string(), &adapters]) else { return };
        let mut scenario = json!({
            "model": { "hf": {
                "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4000,
            } },
            "input": { "batch": 2, "seq": 128, "attention_mask": "ones" },
            "training": training,
            "device": { "gpu": CARD },
        });
        // The Trainer's own default is the fused AdamW.
        for (key, value) in [("trainer", json!("transformers")), ("optimizer_impl", json!("fused"))] {
            scenario["training"][key] = value;
        }
        scenario["training"]["optimizer_steps"] = json!(3);
        compare(what, &scenario, &peaks);
    }
}

/// The loop of torchvision's references/classification/train.py, in fewer words.
const REFERENCES: &str = "\
import sys, torch, torchvision
amp = sys.argv[1] == 'amp'
torch.backends.cudnn.benchmark = True
model = torchvision.models.get_model('resnet18', num_classes=20).to('cuda')
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
scaler = torch.amp.GradScaler('cuda') if amp else None
def accuracy(output, target, topk):
    with torch.inference_mode():
        _, pred = output.topk(max(topk), 1, True, True)
        pred = pred.t()
        correct = pred.eq(target[None])
        res = []
        for k in topk:
            correct_k = correct[:k].flatten().sum(dtype=torch.float32)
            res.append(correct_k * (100.0 / len(target)))
        return res
for image, target in [(torch.zeros(8, 3, 224, 224), torch.zeros(8, dtype=torch.long))] * 3:
    image, target = image.to('cuda'), target.to('cuda')
    with torch.autocast('cuda', torch.float16, enabled=amp):
        output = model(image)
        loss = criterion(output, target)
    optimizer.zero_grad()
    if amp:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    acc1, acc5 = accuracy(output, target, (1, 5))
";

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn the_peaks_of_torchvisions_loop_are_the_estimates() {
    let folder = folder("references");
    fs::write(folder.join("train.py"), REFERENCES).unwrap();
    for (which, precision) in [("plain", "fp32"), ("amp", "fp16-amp")] {
        let Some(peaks) = rehearsed(&folder, &["train.py", which]) else { return };
        let scenario = json!({
            "model": { "family": "resnet", "variant": "resnet18", "num_classes": 20 },
            "input": { "batch": 8, "image": 224 },
            "training": {
                "precision": precision, "optimizer": "sgd-momentum", "weight_decay": 1e-4, "clip_grad_norm": false,
                "keep_outputs": true, "zero_grad_at": "before-backward", "trainer": "torchvision", "optimizer_steps": 3,
            },
            "device": { "gpu": CARD },
        });
        compare(which, &scenario, &peaks);
    }
}

/// TRL ships its script with itself: it runs unchanged, on a model, words and texts made for it.
#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn trls_own_script_runs_to_its_end() {
    let code = "\
import json, os
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
words = {word: number for number, word in enumerate(['<pad>', '<eos>', '<unk>', 'a', 'hollow', 'card'])}
tokenizer = Tokenizer(models.WordLevel(words, unk_token='<unk>'))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token='<pad>', eos_token='<eos>', unk_token='<unk>').save_pretrained('model')
LlamaForCausalLM(LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=512, pad_token_id=0,
    bos_token_id=1, eos_token_id=1)).save_pretrained('model')
os.makedirs('data', exist_ok=True)
with open('data/train.jsonl', 'w') as file:
    file.writelines(json.dumps({'text': 'a hollow card ' * 20}) + '\\n' for _ in range(64))
import runpy, sys, trl
sys.argv = ['sft.py', '--model_name_or_path', 'model', '--dataset_name', 'data', '--output_dir', 'out', '--max_steps', '3',
            '--max_length', '32', '--report_to', 'none', '--save_strategy', 'no', '--per_device_train_batch_size', '4']
runpy.run_path(os.path.join(os.path.dirname(trl.__file__), 'scripts', 'sft.py'), run_name='__main__')
";
    let folder = folder("sft");
    fs::write(folder.join("train.py"), code).unwrap();
    let Some(peaks) = rehearsed(&folder, &["train.py"]) else { return };
    assert_eq!(peaks["processes"][0]["steps"], 3, "{peaks}");
    // The head is applied tile by tile within the forward, beside AdamW's states.
    assert_eq!(peaks["processes"][0]["cards"][0]["allocated_in"], json!(["forward", 2]), "{peaks}");
}

/// A model of a user's own, whose attention is two products and a softmax, and its loop.
const OWN: &str = "\
import torch, torch.nn as nn, torch.nn.functional as F

class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, 4, d // 4).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8, -1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(b, s, d))

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, 256)
        self.layers = nn.Sequential(Layer(256), Layer(256))
        self.head = nn.Linear(256, 1000)

    def forward(self, ids):
        return self.head(self.layers(self.table(ids)))

if __name__ == '__main__':
    model = Own().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        ids = torch.zeros(8, 512, dtype=torch.int64).cuda()
        with torch.autocast('cuda', torch.bfloat16):
            loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
";

/// The model `Own` of the folder's `own.py`, recorded as `args` say.
fn recorded(folder: &Path, args: &[&str]) -> PathBuf {
    let hull = folder.join("own.hull");
    let mut trace = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    trace.current_dir(folder).args(["trace", "own.py:Own"]).args(args).args(["--gpu", CARD, "-o"]).arg(&hull);
    if let Some(python) = env::var_os("PLIMSOLL_TEST_PYTHON") {
        trace.arg("--python").arg(python);
    }
    let traced = trace.output().unwrap();
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    hull
}

/// What kernels hold while they run is counted of a recording too: at the peak softmax's backward has 32 MiB of its own, which a
/// recording without it lacks.
#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_recorded_models_peaks_are_the_estimates() {
    let folder = folder("own");
    fs::write(folder.join("own.py"), OWN).unwrap();
    let Some(peaks) = rehearsed(&folder, &["own.py"]) else { return };
    let loss = "F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())";
    let hull = recorded(&folder, &["--input", "ids=int64[B,S]", "--precision", "bf16-amp", "--loss", loss]);
    let estimate = estimated(&json!({
        "model": { "hull": hull, "S": 512 },
        "input": { "batch": 8 },
        "training": { "precision": "bf16-amp", "optimizer": "adamw", "clip_grad_norm": false },
        "device": { "gpu": CARD },
    }));
    let figure = |of: &Value, name: &str| of[name].as_u64().unwrap();
    let peak = &peaks["peak"];
    assert_eq!(figure(&estimate, "reserved"), figure(peak, "reserved"), "{estimate} {peak}");
    // The host's side of the loop has a number or two more on the card than the script's.
    let apart = figure(&estimate, "allocated").abs_diff(figure(peak, "allocated"));
    assert!(apart <= 4096, "{estimate} {peak}");
}

/// A model of a user's own whose kernels hold something of their own: group norm on points that lie another way, one number out of many,
/// rows that are sorted and picked from.
const SCRATCH: &str = "\
import torch, torch.nn as nn, torch.nn.functional as F

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(256, 256, 3, padding=1), nn.GroupNorm(256, 256)

    def forward(self, x):
        x = self.norm(self.conv(x.transpose(1, 2)))
        rows = x.flatten(1)
        first, _ = rows.topk(6000)
        ordered, _ = x.sort(-1)
        return x * torch.ops.aten.sum.dim_IntList(rows, dim=[1])[:, None, None], first.mean() + ordered.amax((0, 1)).mean() + rows.var()

def loss(model, x, y):
    out, more = model(x)
    return F.mse_loss(out, y) + more

if __name__ == '__main__':
    model = Own().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        x, y = torch.zeros(4, 5000, 256).cuda(), torch.zeros(4, 256, 5000).cuda()
        value = loss(model, x, y)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
";

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn what_a_recorded_models_kernels_hold_is_in_its_peaks() {
    let folder = folder("scratch");
    fs::write(folder.join("own.py"), SCRATCH).unwrap();
    let Some(peaks) = rehearsed(&folder, &["own.py"]) else { return };
    let inputs = ["--input", "x=float32[B,5000,256]", "--input", "y=float32[B,256,5000]"];
    let hull = recorded(&folder, &[&inputs[..], &["--loss", "loss(model, x, y)", "--precision", "fp32"]].concat());
    let estimate = estimated(&json!({
        "model": { "hull": hull },
        "input": { "batch": 4 },
        "training": { "precision": "fp32", "optimizer": "adamw", "clip_grad_norm": false },
        "device": { "gpu": CARD },
    }));
    let figure = |of: &Value, name: &str| of[name].as_u64().unwrap();
    let peak = &peaks["peak"];
    assert_eq!(figure(&estimate, "reserved"), figure(peak, "reserved"), "{estimate} {peak}");
    let apart = figure(&estimate, "allocated").abs_diff(figure(peak, "allocated"));
    assert!(apart <= 4096, "{estimate} {peak}");
}
