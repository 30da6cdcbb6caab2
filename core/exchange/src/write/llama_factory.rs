//! LLaMA-Factory's YAML.

use plimsoll_ground::Result;
use plimsoll_scenario::{ActivationOffloading, Attention, Kernels, LossImpl, Precision, Quantization, Scenario};

use super::parts::{self, Yaml};

/// The file.
pub fn write(scenario: &Scenario) -> Result<String> {
    parts::only_causal(scenario)?;
    let training = &scenario.training;
    let mut yaml = Yaml(parts::header(scenario, "llamafactory-cli train llama_factory.yaml"));
    yaml.put("model_name_or_path", parts::model(scenario)?);
    yaml.put("stage", "sft");
    yaml.put("do_train", true);
    yaml.put("finetuning_type", if training.lora.is_some() { "lora" } else { "full" });
    if let Some(lora) = &training.lora {
        yaml.put("lora_rank", lora.rank);
        yaml.put("lora_alpha", 2 * lora.rank);
        yaml.put("lora_dropout", format!("{:?}", lora.dropout));
        yaml.maybe("lora_target", parts::targets(scenario, "all").map(|list| list.replace(['[', ']', '"', ' '], "")));
        if lora.dora {
            yaml.put("use_dora", true);
        }
        if !lora.modules_to_save.is_empty() {
            yaml.put("additional_target", lora.modules_to_save.join(","));
        }
    }
    match training.quantization {
        Quantization::None => {}
        Quantization::Int8 => yaml.put("quantization_bit", 8),
        other => {
            yaml.put("quantization_bit", 4);
            yaml.put("double_quantization", other == Quantization::Nf4Double);
        }
    }
    yaml.gap();
    yaml.put("dataset", "identity  # yours");
    yaml.put("template", "default  # the model's own");
    yaml.maybe("cutoff_len", scenario.input.seq);
    yaml.put("packing", true);
    yaml.gap();
    yaml.put("output_dir", "out");
    yaml.put("per_device_train_batch_size", scenario.input.batch);
    yaml.put("gradient_accumulation_steps", training.accumulation);
    let (checkpointed, nested) = parts::checkpoints(scenario);
    yaml.put("disable_gradient_checkpointing", !checkpointed);
    if training.activation_offloading == ActivationOffloading::CheckpointInputs {
        yaml.put("use_unsloth_gc", true);
    } else {
        yaml.put("use_reentrant_gc", nested);
    }
    yaml.put("optim", parts::optim(scenario)?);
    yaml.put("learning_rate", "1.0e-4");
    yaml.put("num_train_epochs", 1.0);
    yaml.put("max_grad_norm", if training.clip_grad_norm { "1.0" } else { "0.0" });
    yaml.put("bf16", training.precision == Precision::Bf16Amp);
    yaml.put("fp16", training.precision == Precision::Fp16Amp);
    if training.precision == Precision::Bf16 {
        yaml.put("pure_bf16", true);
    }
    yaml.put("flash_attn", if training.attention == Attention::Eager { "disabled" } else { "sdpa" });
    if training.loss_impl == LossImpl::FusedLinear || training.kernels == Kernels::Liger {
        yaml.put("enable_liger_kernel", true);
    }
    if training.label_smoothing > 0.0 {
        yaml.put("label_smoothing_factor", format!("{:?}", training.label_smoothing));
    }
    Ok(yaml.0)
}
