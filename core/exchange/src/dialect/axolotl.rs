//! Axolotl's YAML (0.19). What it leaves out is transformers' default; the model is loaded in the half type that `bf16` or `fp16` names
//! (axolotl/utils/config).

use plimsoll_scenario::{Attention, LossImpl};
use serde_json::Value;

use super::common::{
    OWN_OFFLOADING, adapter, attention, beyond_fine_tuning, clip, fsdp_version, model, offloads, optim, row,
};
use super::transformers;
use crate::draft::{Draft, Dtype, Reentrant, Targets};
use crate::rule::{Does, Heard, Rule, flag};

use Does::{Auto, Beyond, By, Count, Degree, Flag, Free};

/// transformers' defaults; a micro-batch of 1, checkpoints reentrant but in preference tuning (`normalize_config`), and but for
/// a whole model whose activations are offloaded (`_apply_activation_checkpointing` of axolotl/loaders/model.py).
pub fn defaults(draft: &mut Draft) {
    transformers::arguments(draft);
    draft.batch = Some(1);
    draft.reentrant_unsaid = Some(Reentrant::ButOffloaded);
    draft.adapters = Some(false);
}

/// `bf16: true`, `full` or `auto`, which the cards of today answer with yes.
fn bf16(draft: &mut Draft, value: &Value) -> Heard {
    match (flag(value).or((value == "auto").then_some(true)), value.as_str()) {
        (Some(on), _) => {
            draft.bf16 = Some(on);
            if on {
                draft.weights = Some(Dtype::Bfloat16);
            }
        }
        (_, Some("full")) => {
            draft.bf16 = Some(false);
            draft.weights = Some(Dtype::Bfloat16);
        }
        _ => return Heard::wrong("true, false, auto or full"),
    }
    Heard::Taken
}

fn fp16(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            draft.fp16 = Some(on);
            if on {
                draft.bf16 = Some(false);
                draft.weights = Some(Dtype::Float16);
            }
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

fn linear(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            if on {
                draft.targets = Some(Targets::All);
            }
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

/// `true` is TRL's `OffloadActivations` around each step, `legacy`, `disk` and `hidden_states` are ways of its own
/// (axolotl/core/trainers/mixins/activation_checkpointing.py).
fn offloading(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        Some(own @ ("legacy" | "disk" | "hidden_states")) => Heard::Beyond(format!("{own}: {OWN_OFFLOADING}")),
        Some(_) => Heard::wrong("true, false, legacy, disk or hidden_states"),
        None => offloads(draft, value),
    }
}

fn checkpointing(draft: &mut Draft, value: &Value) -> Heard {
    match (flag(value), value.as_str()) {
        (Some(on), _) => {
            draft.checkpointing = Some(on);
            Heard::Taken
        }
        // As `activation_offloading: true`, and `disk` (`check_gradient_checkpointing_w_offload`).
        (_, Some("offload")) => {
            draft.checkpointing = Some(true);
            offloads(draft, &Value::Bool(true))
        }
        (_, Some("offload_disk")) => {
            draft.checkpointing = Some(true);
            Heard::Beyond(format!("disk: {OWN_OFFLOADING}"))
        }
        _ => Heard::wrong("true, false or offload"),
    }
}

fn rl(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        Some(way) => {
            draft.reentrant_unsaid = None;
            beyond_fine_tuning(draft, way, &["dpo", "ipo", "orpo", "simpo"])
        }
        None if value.is_null() => Heard::Silent,
        None => Heard::wrong("dpo, ipo, kto, orpo, simpo or grpo"),
    }
}

fn flash(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(true) => attention(draft, &"flash_attention_2".into()),
        Some(false) => Heard::Taken,
        None => Heard::wrong("true or false"),
    }
}

fn sdp(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            if on {
                draft.attention = Some(Attention::Sdpa);
            }
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

fn eager(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            if on {
                draft.attention = Some(Attention::Eager);
            }
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

fn chunked(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            draft.loss = Some(if on { LossImpl::Chunked } else { LossImpl::Full });
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

/// `deepspeed_configs/zero2.json`.
fn deepspeed(_: &mut Draft, value: &Value) -> Heard {
    Heard::Beyond(format!("DeepSpeed's own file says it: give {} too", value.as_str().unwrap_or("it")))
}

/// The rows.
pub const RULES: &[Rule] = &[
    row("rl", By(rl)),
    row("base_model", By(model)),
    row("micro_batch_size", Count(|d| &mut d.batch)),
    row("sequence_len", Count(|d| &mut d.seq)),
    row("sample_packing", Flag(|d| &mut d.packing)),
    row("adapter", By(adapter)),
    row("lora_target_linear", By(linear)),
    row("lora_modules_to_save", By(super::common::save)),
    row("peft_use_dora", Flag(|d| &mut d.dora)),
    row("bf16", Auto(bf16)),
    row("bfloat16", Auto(bf16)),
    row("fp16", By(fp16)),
    row("gradient_checkpointing", By(checkpointing)),
    row("flash_attention", By(flash)),
    row("sdp_attention", By(sdp)),
    row("eager_attention", By(eager)),
    row("optimizer", By(optim)),
    row("liger_fused_linear_cross_entropy", Flag(|d| &mut d.liger_loss)),
    row("liger_rope", Flag(|d| &mut d.liger_parts[0])),
    row("liger_rms_norm", Flag(|d| &mut d.liger_parts[1])),
    row("liger_glu_activation", Flag(|d| &mut d.liger_parts[2])),
    row("liger_swiglu", Flag(|d| &mut d.liger_parts[2])),
    row("chunked_cross_entropy", By(chunked)),
    row("deepspeed", By(deepspeed)),
    row("dp_replicate_size", Degree(|d| &mut d.replicate)),
    row("tensor_parallel_size", Count(|d| &mut d.tensor)),
    row("context_parallel_size", Count(|d| &mut d.context)),
    row("sequence_parallel_degree", Count(|d| &mut d.context)),
    row("fsdp_version", By(fsdp_version)),
    row("max_grad_norm", By(clip)),
    row("layer_offloading", Beyond("layers are estimated on the card")),
    row("activation_offloading", By(offloading)),
    row("quantize_moe_experts", Beyond("experts are estimated as they are loaded")),
    row("lora_mlp_kernel", Beyond("peft's own adapters are estimated")),
    row("lora_qkv_kernel", Beyond("peft's own adapters are estimated")),
    row("lora_o_kernel", Beyond("peft's own adapters are estimated")),
    row("lora_fan_in_fan_out", Free),
    row("liger_*", Free),
    row("plugins", Free),
    row("pad_to_sequence_len", Free),
    row("datasets", Free),
    row("test_datasets", Free),
    row("dataset_prepared_path", Free),
    row("val_set_size", Free),
    row("num_epochs", Free),
    row("lr_scheduler", Free),
    row("train_on_inputs", Free),
    row("wandb_*", Free),
    row("special_tokens.*", Free),
    row("tokenizer_*", Free),
    row("model_type", Free),
    row("chat_template", Free),
    row("hf_use_auth_token", Free),
    row("strict", Free),
    row("saves_per_epoch", Free),
    row("evals_per_epoch", Free),
    row("xformers_attention", Free),
    row("local_rank", Free),
    row("is_llama_derived_model", Free),
];
