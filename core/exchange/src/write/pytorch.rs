//! A training loop in plain PyTorch, which holds no more than the estimate has: gradients are dropped, outputs are let go of
//! before backward, and what is left over of an accumulation is a step of its own.

use std::fmt::Write as _;

use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{
    ActivationOffloading, Checkpointing, Kernels, LossImpl, Mode, ModelSource, Optimizer, OptimizerImpl, Precision,
    QuantStorage, Quantization, Scenario, ZeroGrad, ZeroGradAt, at,
};

use super::parts;
use super::trainer::python;
use crate::dialect::{KEEPS, OFFLOADED};

/// What a selective checkpoint keeps, as the probe's worker has it; named as [`KEEPS`] says.
const KEEP_SELECTED: &str = include_str!("keep_selected.py");

/// A checkpoint whose input waits in the machine's memory, likewise.
const OFFLOADED_CHECKPOINT: &str = include_str!("offloaded_checkpoint.py");

/// The script.
pub fn write(scenario: &Scenario) -> Result<String> {
    parts::only_training(scenario)?;
    let training = &scenario.training;
    let Some(class) = parts::auto_class(scenario) else {
        return Err(Error::new(at::model::task, "there is no loop for it yet", "take toml or json"));
    };
    debug_assert_eq!(training.mode, Mode::Train);
    let mut out = parts::header(scenario, "A training loop in plain PyTorch");
    out.push_str(&imports(scenario, class));
    let name = parts::model(scenario)?;
    if let ModelSource::HuggingFace(config) = &scenario.model.source {
        let config = serde_json::Value::Object(config.clone());
        let _ = writeln!(out, "CONFIG = json.loads({:?})", config.to_string());
    } else {
        let _ = writeln!(out, "MODEL = {name:?}");
    }
    let _ = writeln!(out, "MICRO_BATCH = {}", scenario.input.batch);
    let _ = writeln!(out, "ACCUMULATION = {}  # micro-batches of a step", training.accumulation);
    if let Some(seq) = scenario.input.seq {
        let _ = writeln!(out, "SEQUENCE = {seq}  # tokens of a sample");
    }
    let _ = writeln!(out, "WEIGHTS = torch.{}", parts::weights(scenario));
    out.push_str("DEVICE = torch.device(\"cuda\" if torch.cuda.is_available() else \"cpu\")\n\n");
    if training.checkpointing == Checkpointing::Selective {
        let _ = writeln!(out, "\n{KEEP_SELECTED}\n");
    }
    if training.activation_offloading == ActivationOffloading::CheckpointInputs {
        let _ = writeln!(out, "\n{OFFLOADED_CHECKPOINT}\n");
    }
    out.push_str(&model(scenario, class));
    out.push_str(&optimizer(scenario)?);
    out.push_str(&steps(scenario));
    Ok(out)
}

fn imports(scenario: &Scenario, class: &str) -> String {
    let training = &scenario.training;
    let quantized = training.quantization != Quantization::None;
    let pasted = matches!(scenario.model.source, ModelSource::HuggingFace(_));
    let mut out = String::new();
    if pasted {
        out.push_str("import json\n");
    }
    if training.activation_offloading == ActivationOffloading::OffloadActivations {
        out.push_str("from contextlib import nullcontext\n");
    }
    out.push_str("from itertools import islice\n\nimport torch\n");
    let eight = [Optimizer::AdamW8bit, Optimizer::PagedAdamW, Optimizer::PagedAdamW8bit];
    if eight.contains(&training.optimizer) || training.optimizer == Optimizer::Lion {
        out.push_str("import bitsandbytes as bnb\n");
    }
    if training.optimizer == Optimizer::Adafactor {
        out.push_str("import transformers\n");
    }
    let mut names = vec![class];
    if pasted {
        names.push("AutoConfig");
    }
    if quantized {
        names.push("BitsAndBytesConfig");
    }
    if training.activation_offloading == ActivationOffloading::CheckpointInputs {
        names.push("modeling_utils");
    }
    names.sort_unstable();
    if training.lora.is_some() {
        let more = if quantized && training.prepare_kbit { ", prepare_model_for_kbit_training" } else { "" };
        let _ = writeln!(out, "from peft import LoraConfig, get_peft_model{more}");
    }
    let _ = writeln!(out, "from transformers import {}", names.join(", "));
    if training.kernels == Kernels::Liger {
        out.push_str("from liger_kernel.transformers import _apply_liger_kernel_to_instance\n");
    }
    if training.activation_offloading == ActivationOffloading::OffloadActivations {
        out.push_str("from accelerate import PartialState\n");
        out.push_str("from trl.models.activation_offloading import get_act_offloading_ctx_manager\n");
    }
    out.push('\n');
    out
}

fn model(scenario: &Scenario, class: &str) -> String {
    let training = &scenario.training;
    let attention = training.attention;
    let quantized = training.quantization != Quantization::None;
    let mut out = String::new();
    if matches!(scenario.model.source, ModelSource::HuggingFace(_)) {
        let _ = writeln!(out, "config = AutoConfig.for_model(**CONFIG)");
        let _ = writeln!(
            out,
            "model = {class}.from_config(config, dtype=WEIGHTS, attn_implementation=\"{attention}\").to(DEVICE)"
        );
    } else if quantized {
        let (four, double) = match training.quantization {
            Quantization::Int8 => (false, false),
            quantization => (true, quantization == Quantization::Nf4Double),
        };
        let bits = if four {
            format!(
                "load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", bnb_4bit_use_double_quant={}, bnb_4bit_compute_dtype=WEIGHTS{}",
                python(double),
                match training.quant_storage {
                    QuantStorage::Uint8 => String::new(),
                    storage => format!(", bnb_4bit_quant_storage=torch.{storage}"),
                }
            )
        } else {
            "load_in_8bit=True".to_owned()
        };
        let _ = writeln!(
            out,
            "model = {class}.from_pretrained(\n    MODEL,\n    dtype=WEIGHTS,\n    attn_implementation=\"{attention}\",\n    device_map={{\"\": DEVICE}},\n    quantization_config=BitsAndBytesConfig({bits}),\n)"
        );
    } else {
        let _ = writeln!(
            out,
            "model = {class}.from_pretrained(MODEL, dtype=WEIGHTS, attn_implementation=\"{attention}\").to(DEVICE)"
        );
    }
    let checkpointed = training.checkpointing != Checkpointing::None;
    if quantized && training.prepare_kbit {
        let _ = writeln!(
            out,
            "model = prepare_model_for_kbit_training(model, use_gradient_checkpointing={})",
            python(checkpointed)
        );
    }
    if let Some(lora) = &training.lora {
        let mut line = format!("r={}, lora_alpha={}, ", lora.rank, 2 * lora.rank);
        let _ = write!(line, "target_modules={}, ", parts::targets(scenario, "\"all-linear\"").unwrap_or_default());
        let _ = write!(line, "lora_dropout={:?}", lora.dropout);
        if lora.dora {
            line.push_str(", use_dora=True");
        }
        if !lora.modules_to_save.is_empty() {
            let _ = write!(line, ", modules_to_save={}", parts::list(&lora.modules_to_save));
        }
        let flag = if lora.autocast_adapter_dtype { "" } else { ", autocast_adapter_dtype=False" };
        let _ = writeln!(out, "model = get_peft_model(model, LoraConfig({line}){flag})");
    }
    if training.kernels == Kernels::Liger {
        let inner = if training.lora.is_some() { "model.get_base_model()" } else { "model" };
        let fused = python(training.loss_impl == LossImpl::FusedLinear);
        let _ = writeln!(out, "_apply_liger_kernel_to_instance(model={inner}, fused_linear_cross_entropy={fused})");
    }
    if checkpointed {
        if training.lora.is_some() && !quantized {
            out.push_str("model.enable_input_require_grads()\n");
        }
        let keeps = if training.checkpointing == Checkpointing::Selective {
            format!(", \"context_fn\": {KEEPS}")
        } else {
            String::new()
        };
        if training.activation_offloading == ActivationOffloading::CheckpointInputs {
            // What `gradient_checkpointing_enable` hands to the layers.
            let _ = writeln!(out, "modeling_utils.checkpoint = {OFFLOADED}()");
        }
        let nested = python(parts::checkpoints(scenario).1);
        let _ = writeln!(
            out,
            "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{\"use_reentrant\": {nested}{keeps}}})"
        );
    }
    out.push_str("model.config.use_cache = False\nmodel.train()\n");
    out.push_str("parameters = [p for p in model.parameters() if p.requires_grad]\n");
    out
}

/// Each parameter's optimizer steps when its gradient has come, and lets go of it.
const STEP_IN_BACKWARD: &str = "

def step_and_let_go(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad(set_to_none=True)


for p in parameters:
    p.register_post_accumulate_grad_hook(step_and_let_go)
";

fn optimizer(scenario: &Scenario) -> Result<String> {
    use Optimizer as O;
    let training = &scenario.training;
    let implementation = match training.optimizer_impl {
        OptimizerImpl::Foreach => ", foreach=True",
        OptimizerImpl::Fused => ", fused=True",
        OptimizerImpl::ForLoop => ", foreach=False",
    };
    // In backward each parameter has one of its own.
    let given = if training.optimizer_in_backward { "[p]" } else { "parameters" };
    let bnb = |class: &str| format!("bnb.optim.{class}({given}, lr=1e-4)");
    let torch = |class: &str, more: &str| format!("torch.optim.{class}({given}, lr=1e-4{more}{implementation})");
    let amsgrad = if training.amsgrad { ", amsgrad=True" } else { "" };
    let call = match training.optimizer {
        O::Sgd => torch("SGD", ""),
        O::SgdMomentum => torch("SGD", ", momentum=0.9"),
        O::Adam => torch("Adam", amsgrad),
        O::AdamW => torch("AdamW", amsgrad),
        O::NAdam => torch("NAdam", ""),
        O::Adamax => torch("Adamax", ""),
        O::Adagrad => torch("Adagrad", ""),
        O::RmsProp => torch("RMSprop", ""),
        O::RmsPropMomentum => torch("RMSprop", ", momentum=0.9"),
        O::AdafactorTorch => torch("Adafactor", ""),
        O::Adafactor => {
            format!("transformers.Adafactor({given}, lr=1e-4, scale_parameter=False, relative_step=False)")
        }
        O::AdamW8bit => bnb("AdamW8bit"),
        O::PagedAdamW => bnb("PagedAdamW"),
        O::PagedAdamW8bit => bnb("PagedAdamW8bit"),
        O::Lion if training.optimizer_impl == OptimizerImpl::Fused => bnb("Lion"),
        other => {
            let problem = format!("{other} is not written yet");
            return Err(Error::new(at::training::optimizer, problem, "take toml or json"));
        }
    };
    if training.optimizer_in_backward {
        return Ok(format!("optimizers = {{p: {call} for p in parameters}}\n{STEP_IN_BACKWARD}"));
    }
    let mut out = format!("optimizer = {call}\n");
    if training.precision == Precision::Fp16Amp {
        out.push_str("scaler = torch.amp.GradScaler(DEVICE.type)\n");
    }
    Ok(out)
}

fn steps(scenario: &Scenario) -> String {
    let training = &scenario.training;
    let scaled = training.precision == Precision::Fp16Amp;
    // TRL's manager is around backward too, and reports through accelerate.
    let around = training.activation_offloading == ActivationOffloading::OffloadActivations;
    let manager = "PartialState()\noffloading = get_act_offloading_ctx_manager(model=model) if DEVICE.type == \"cuda\" else nullcontext()\n";
    let mut out = if around { manager.to_owned() } else { String::new() };
    out.push_str(
        "

def micro_batches():
    \"\"\"Your data: the model's inputs and labels, all samples of one length so that nothing is padded.\"\"\"
    for _ in range(100):
        tokens = torch.randint(model.config.vocab_size, (MICRO_BATCH, SEQUENCE))
        yield {\"input_ids\": tokens, \"labels\": tokens}


def groups(batches, size):
    \"\"\"`size` at a time; the last group has what is left.\"\"\"
    batches = iter(batches)
    while group := list(islice(batches, size)):
        yield group

",
    );
    if let Some(line) = scenario.device.load_line {
        let _ = writeln!(
            out,
            "\nif DEVICE.type == \"cuda\":\n    # Beyond this PyTorch says that memory is out, instead of leaving none to others.\n    total = torch.cuda.get_device_properties(DEVICE).total_memory\n    torch.cuda.set_per_process_memory_fraction(min(1.0, {} / total))\n",
            line.get()
        );
    }
    out.push_str("\nfor step, group in enumerate(groups(micro_batches(), ACCUMULATION)):\n");
    if training.zero_grad_at == ZeroGradAt::BeforeForward {
        let _ = writeln!(out, "    {}", zero(training.zero_grad));
    }
    out.push_str(
        "    for batch in group:\n        batch = {name: tensor.to(DEVICE) for name, tensor in batch.items()}\n",
    );
    let offloading = (training.activation_offloading == ActivationOffloading::SaveOnCpu)
        .then(|| "torch.autograd.graph.save_on_cpu(pin_memory=DEVICE.type == \"cuda\")".to_owned());
    let outer = if around { "    " } else { "" };
    if around {
        out.push_str("        with offloading:\n");
    }
    let autocast = parts::autocast(scenario).map(|dtype| format!("torch.autocast(DEVICE.type, dtype=torch.{dtype})"));
    let within: Vec<String> = offloading.into_iter().chain(autocast).collect();
    let indent = if within.is_empty() { "" } else { "    " };
    if !within.is_empty() {
        let _ = writeln!(out, "        {outer}with {}:", within.join(", "));
    }
    let _ = writeln!(out, "        {outer}{indent}loss = model(**batch).loss / len(group)");
    let loss = if scaled { "scaler.scale(loss)" } else { "loss" };
    let _ = writeln!(out, "        {outer}{loss}.backward()");
    if training.clip_grad_norm {
        if scaled {
            out.push_str("    scaler.unscale_(optimizer)\n");
        }
        out.push_str("    torch.nn.utils.clip_grad_norm_(parameters, 1.0)\n");
    }
    if !training.optimizer_in_backward {
        out.push_str(if scaled {
            "    scaler.step(optimizer)\n    scaler.update()\n"
        } else {
            "    optimizer.step()\n"
        });
        if training.zero_grad_at == ZeroGradAt::AfterStep {
            let _ = writeln!(out, "    {}", zero(training.zero_grad));
        }
    }
    out.push_str("    if step < 3 and DEVICE.type == \"cuda\":\n");
    out.push_str(
        "        print(f\"step {step}: {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB reserved at most\")\n",
    );
    out
}

const fn zero(how: ZeroGrad) -> &'static str {
    match how {
        ZeroGrad::SetToNone => "optimizer.zero_grad(set_to_none=True)",
        ZeroGrad::Zero => "optimizer.zero_grad(set_to_none=False)",
    }
}
