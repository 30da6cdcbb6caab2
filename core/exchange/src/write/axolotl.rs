//! Axolotl's YAML.

use plimsoll_ground::Result;
use plimsoll_scenario::{
    ActivationOffloading, Attention, Kernels, LoraTargets, LossImpl, Precision, Quantization, Scenario,
};

use super::parts::{self, Yaml};

/// The file.
pub fn write(scenario: &Scenario) -> Result<String> {
    parts::only_causal(scenario)?;
    let training = &scenario.training;
    let mut yaml = Yaml(parts::header(scenario, "axolotl train axolotl.yaml"));
    yaml.put("base_model", parts::model(scenario)?);
    match training.quantization {
        Quantization::None => {}
        Quantization::Int8 => yaml.put("load_in_8bit", true),
        other => {
            yaml.put("load_in_4bit", true);
            yaml.put("bnb_4bit_use_double_quant", other == Quantization::Nf4Double);
        }
    }
    if let Some(lora) = &training.lora {
        yaml.put(
            "adapter",
            if matches!(training.quantization, Quantization::None | Quantization::Int8) { "lora" } else { "qlora" },
        );
        yaml.put("lora_r", lora.rank);
        yaml.put("lora_alpha", 2 * lora.rank);
        yaml.put("lora_dropout", format!("{:?}", lora.dropout));
        match &lora.targets {
            LoraTargets::AllLinear => yaml.put("lora_target_linear", true),
            LoraTargets::Names(names) => yaml.put("lora_target_modules", parts::list(names)),
        }
        if lora.dora {
            yaml.put("peft_use_dora", true);
        }
        if !lora.modules_to_save.is_empty() {
            yaml.put("lora_modules_to_save", parts::list(&lora.modules_to_save));
        }
    }
    yaml.gap();
    yaml.put("datasets", "\n  - path: tatsu-lab/alpaca  # yours\n    type: alpaca");
    yaml.maybe("sequence_len", scenario.input.seq);
    yaml.put("sample_packing", true);
    yaml.put("pad_to_sequence_len", true);
    yaml.gap();
    yaml.put("micro_batch_size", scenario.input.batch);
    yaml.put("gradient_accumulation_steps", training.accumulation);
    let (checkpointed, nested) = parts::checkpoints(scenario);
    yaml.put("gradient_checkpointing", checkpointed);
    if checkpointed {
        yaml.put("gradient_checkpointing_kwargs", format!("{{use_reentrant: {nested}}}"));
    }
    if training.activation_offloading == ActivationOffloading::OffloadActivations {
        yaml.put("activation_offloading", true);
    }
    yaml.put("optimizer", parts::optim(scenario)?);
    yaml.put("learning_rate", "0.0001");
    yaml.put("lr_scheduler", "cosine");
    yaml.put("num_epochs", 1);
    yaml.put("max_grad_norm", if training.clip_grad_norm { "1.0" } else { "0.0" });
    match training.precision {
        Precision::Bf16Amp => yaml.put("bf16", true),
        Precision::Bf16 => yaml.put("bf16", "full"),
        Precision::Fp16Amp => yaml.put("fp16", true),
        Precision::Fp32 | Precision::Fp16 => yaml.put("bf16", false),
    }
    match training.attention {
        Attention::Sdpa => yaml.put("attn_implementation", "sdpa"),
        Attention::Eager => yaml.put("attn_implementation", "eager"),
    }
    match training.loss_impl {
        LossImpl::Full | LossImpl::FusedLmHead => {}
        LossImpl::Chunked => yaml.put("chunked_cross_entropy", true),
        LossImpl::FusedLinear => yaml.put("liger_fused_linear_cross_entropy", true),
    }
    if let Some(liger) = parts::liger(scenario) {
        if liger.rope {
            yaml.put("liger_rope", true);
        }
        yaml.put("liger_rms_norm", true);
        if liger.gate.is_some() {
            yaml.put("liger_glu_activation", true);
        }
    }
    if training.loss_impl == LossImpl::FusedLinear || training.kernels == Kernels::Liger {
        yaml.put("plugins", "[axolotl.integrations.liger.LigerPlugin]");
    }
    if training.compile {
        yaml.put("torch_compile", true);
    }
    yaml.put("output_dir", "./out");
    Ok(yaml.0)
}
