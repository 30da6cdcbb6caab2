//! Loops of libraries, and where they are ended.

use std::fs;

use super::{STEP, folder, said, script};

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
