//! A script with transformers' Trainer, peft and bitsandbytes.

use std::fmt::Write as _;

use plimsoll_catalog::families::Task;
use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{ActivationOffloading, Kernels, LossImpl, QuantStorage, Quantization, Scenario, at};

use super::parts;

/// The script.
pub fn write(scenario: &Scenario) -> Result<String> {
    parts::only_training(scenario)?;
    let training = &scenario.training;
    let Some(class) = parts::auto_class(scenario) else {
        return Err(Error::new(at::model::task, "there is no Trainer for it", "take toml or json"));
    };
    let quantized = training.quantization != Quantization::None;
    let (lora, causal) = (training.lora.as_ref(), scenario.model.task == Task::CausalLm);
    let trl = training.loss_impl == LossImpl::FusedLmHead;
    let mut names = vec![class, "AutoTokenizer"];
    if !trl {
        names.extend(["Trainer", "TrainingArguments"]);
    }
    if causal && !trl {
        names.push("DataCollatorForLanguageModeling");
    }
    if quantized {
        names.push("BitsAndBytesConfig");
    }
    names.sort_unstable();
    let mut peft = Vec::new();
    if lora.is_some() {
        peft.extend(["LoraConfig", "get_peft_model"]);
    }
    if quantized && training.prepare_kbit {
        peft.push("prepare_model_for_kbit_training");
    }
    let mut out = parts::header(
        scenario,
        if trl { "Fine-tuning with trl's SFTTrainer" } else { "Fine-tuning with transformers' Trainer" },
    );
    out.push_str("import torch\nfrom datasets import load_dataset\n");
    if !peft.is_empty() {
        let _ = writeln!(out, "from peft import {}", peft.join(", "));
    }
    let _ = writeln!(out, "from transformers import {}", names.join(", "));
    if trl {
        out.push_str("from trl import SFTConfig, SFTTrainer\n");
    }
    out.push('\n');
    let _ = writeln!(out, "model_name = {:?}", parts::model(scenario)?);
    if let Some(seq) = scenario.input.seq {
        let _ = writeln!(out, "block_size = {seq}  # tokens of a sample");
    }
    out.push_str("\nmodel = ");
    let _ = writeln!(out, "{class}.from_pretrained(\n    model_name,\n    dtype=torch.{},", parts::weights(scenario));
    let _ = writeln!(out, "    attn_implementation=\"{}\",", training.attention);
    if quantized {
        out.push_str(&bits(scenario));
    }
    out.push_str(")\n");
    if quantized && training.prepare_kbit {
        let on = python(parts::checkpoints(scenario).0);
        let _ = writeln!(out, "model = prepare_model_for_kbit_training(model, use_gradient_checkpointing={on})");
    }
    if let Some(lora) = lora {
        let _ = writeln!(out, "peft_config = LoraConfig(\n    r={},\n    lora_alpha={},", lora.rank, 2 * lora.rank);
        let _ = writeln!(out, "    target_modules={},", parts::targets(scenario, "\"all-linear\"").unwrap_or_default());
        let _ = writeln!(out, "    lora_dropout={:?},", lora.dropout);
        if lora.dora {
            out.push_str("    use_dora=True,\n");
        }
        if !lora.modules_to_save.is_empty() {
            let _ = writeln!(out, "    modules_to_save={},", parts::list(&lora.modules_to_save));
        }
        if causal {
            out.push_str("    task_type=\"CAUSAL_LM\",\n");
        }
        let flag = if lora.autocast_adapter_dtype { "" } else { ", autocast_adapter_dtype=False" };
        let _ = writeln!(out, ")\nmodel = get_peft_model(model, peft_config{flag})");
        if parts::checkpoints(scenario).0 && !quantized {
            out.push_str("model.enable_input_require_grads()\n");
        }
    }
    out.push_str(&arguments(scenario)?);
    out.push_str(&data(causal, trl));
    Ok(out)
}

fn bits(scenario: &Scenario) -> String {
    let mut out = "    quantization_config=BitsAndBytesConfig(\n".to_owned();
    match scenario.training.quantization {
        Quantization::Int8 => out.push_str("        load_in_8bit=True,\n"),
        quantization => {
            let double = python(quantization == Quantization::Nf4Double);
            let _ = writeln!(out, "        load_in_4bit=True,\n        bnb_4bit_quant_type=\"nf4\",");
            let _ = writeln!(out, "        bnb_4bit_use_double_quant={double},");
            let _ = writeln!(out, "        bnb_4bit_compute_dtype=torch.{},", parts::weights(scenario));
            if scenario.training.quant_storage != QuantStorage::Uint8 {
                let _ = writeln!(out, "        bnb_4bit_quant_storage=torch.{},", scenario.training.quant_storage);
            }
        }
    }
    out.push_str("    ),\n");
    out
}

fn arguments(scenario: &Scenario) -> Result<String> {
    let training = &scenario.training;
    let cast = parts::autocast(scenario);
    let trl = training.loss_impl == LossImpl::FusedLmHead;
    let class = if trl { "SFTConfig" } else { "TrainingArguments" };
    let mut out = format!("\nargs = {class}(\n    output_dir=\"out\",\n");
    if trl && scenario.input.seq.is_some() {
        out.push_str("    max_length=block_size,\n");
    }
    if trl && training.activation_offloading == ActivationOffloading::OffloadActivations {
        out.push_str("    activation_offloading=True,\n");
    }
    let _ = writeln!(out, "    per_device_train_batch_size={},", scenario.input.batch);
    let _ = writeln!(out, "    gradient_accumulation_steps={},", training.accumulation);
    let (checkpointed, nested) = parts::checkpoints(scenario);
    let _ = writeln!(out, "    gradient_checkpointing={},", python(checkpointed));
    if checkpointed {
        let _ = writeln!(out, "    gradient_checkpointing_kwargs={{\"use_reentrant\": {}}},", python(nested));
    }
    let _ = writeln!(out, "    bf16={},", python(cast == Some("bfloat16")));
    let _ = writeln!(out, "    fp16={},", python(cast == Some("float16")));
    let _ = writeln!(out, "    optim=\"{}\",", parts::optim(scenario)?);
    let norm = if training.clip_grad_norm { "1.0" } else { "0.0" };
    let _ = writeln!(out, "    max_grad_norm={norm},");
    if training.label_smoothing > 0.0 {
        let _ = writeln!(out, "    label_smoothing_factor={:?},", training.label_smoothing);
    }
    out.push_str(&liger(scenario));
    if training.compile {
        out.push_str("    torch_compile=True,\n");
    }
    out.push_str(
        "    learning_rate=1e-4,\n    num_train_epochs=1,\n    logging_steps=10,\n    report_to=\"none\",\n)\n",
    );
    Ok(out)
}

/// Which of Liger's kernels take the model's place.
fn liger(scenario: &Scenario) -> String {
    let (training, family) = (&scenario.training, scenario.family());
    let (kernels, fused) = (training.kernels == Kernels::Liger, training.loss_impl == LossImpl::FusedLinear);
    let left_out = match (kernels, fused) {
        (false, false) => return String::new(),
        (true, true) => String::new(),
        // trl leaves Liger's loss out by itself.
        (true, false) if training.loss_impl == LossImpl::FusedLmHead => String::new(),
        (true, false) => "    liger_kernel_config={\"fused_linear_cross_entropy\": False},\n".to_owned(),
        (false, true) => family.liger.map_or_else(String::new, |liger| {
            let rope = if liger.rope { "\"rope\": False, " } else { "" };
            let gate = liger.gate.map_or_else(String::new, |gate| format!(", \"{}\": False", gate.key()));
            format!("    liger_kernel_config={{{rope}\"rms_norm\": False{gate}}},\n")
        }),
    };
    format!("    use_liger_kernel=True,\n{left_out}")
}

/// Text in pieces of one length, so that nothing is padded; to be replaced by one's own.
fn data(causal: bool, trl: bool) -> String {
    // trl's own collator does the same.
    let (trainer, collator) = match (causal, trl) {
        (_, true) => ("SFTTrainer", "    processing_class=tokenizer,\n"),
        (true, false) => ("Trainer", "    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),\n"),
        (false, false) => ("Trainer", ""),
    };
    let pieces = if causal {
        "
# Your data: here a text file, cut into pieces of block_size tokens.
tokenizer = AutoTokenizer.from_pretrained(model_name)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token


def pieces(batch):
    tokens = [token for text in batch[\"text\"] for token in tokenizer(text)[\"input_ids\"]]
    whole = len(tokens) // block_size * block_size
    return {\"input_ids\": [tokens[i : i + block_size] for i in range(0, whole, block_size)]}


dataset = load_dataset(\"text\", data_files=\"data.txt\", split=\"train\")
dataset = dataset.map(pieces, batched=True, remove_columns=[\"text\"])
"
    } else {
        "
# Your data: a dataset whose rows hold the model's inputs and its labels.
tokenizer = AutoTokenizer.from_pretrained(model_name)
dataset = load_dataset(\"json\", data_files=\"data.json\", split=\"train\")
"
    };
    format!("{pieces}\n{trainer}(\n    model=model,\n    args=args,\n    train_dataset=dataset,\n{collator}).train()\n")
}

/// `True` or `False`.
pub const fn python(flag: bool) -> &'static str {
    if flag { "True" } else { "False" }
}
