//! LLaMA-Factory's YAML, and its command line, which takes the same keys.

use plimsoll_scenario::{ActivationOffloading, Attention};
use serde_json::Value;

use super::common::{attention, beyond_fine_tuning, liger, row};
use super::transformers;
use crate::draft::{Draft, Dtype, Reentrant, Targets};
use crate::rule::{Does, Heard, Rule, count, flag};

use Does::{Beyond, By, Count, Flag, Free};

/// transformers' defaults, and its own (hparams/finetuning_args.py, data_args.py, model_args.py): adapters of rank 8 on every linear
/// layer, 2048 tokens, double quantization, checkpointing on, reentrant. A base that stays frozen is loaded in bfloat16, one that is
/// trained is kept in float32 unless `pure_bf16`.
pub fn defaults(draft: &mut Draft) {
    transformers::arguments(draft);
    draft.adapters = Some(true);
    draft.rank = Some(8);
    draft.targets = Some(Targets::All);
    draft.seq = Some(2048);
    draft.checkpointing = Some(true);
    draft.reentrant_unsaid = Some(Reentrant::Always);
    draft.double_quant = Some(true);
    draft.weights = Some(Dtype::Bfloat16);
    draft.trained_in_float32 = true;
}

fn kind(draft: &mut Draft, value: &Value) -> Heard {
    draft.adapters = Some(match value.as_str() {
        Some("lora") => true,
        Some("full") => false,
        Some(other) => return Heard::Beyond(format!("{other} is not estimated")),
        None => return Heard::wrong("lora or full"),
    });
    Heard::Taken
}

fn stage(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        Some("sft" | "pt") => Heard::Taken,
        Some(way) => beyond_fine_tuning(draft, way, &["dpo", "rm"]),
        None => Heard::wrong("pt, sft, rm, ppo, dpo or kto"),
    }
}

fn bits(draft: &mut Draft, value: &Value) -> Heard {
    match count(value) {
        Some(4) => draft.four_bit = Some(true),
        Some(8) => draft.eight_bit = Some(true),
        _ => return Heard::wrong("4 or 8"),
    }
    Heard::Taken
}

/// `get_unsloth_gradient_checkpointing_func`: in the place of `torch.utils.checkpoint`, whatever `use_reentrant_gc` says.
fn offloaded(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            draft.offloading = on.then_some(ActivationOffloading::CheckpointInputs);
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

fn without_checkpointing(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(off) => {
            draft.checkpointing = Some(!off);
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

fn pure(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            if on {
                draft.bf16 = Some(false);
                draft.weights = Some(Dtype::Bfloat16);
                draft.trained_in_float32 = false;
            }
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

fn flash(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        Some("disabled") => {
            draft.attention = Some(Attention::Eager);
            Heard::Taken
        }
        _ => attention(draft, value),
    }
}

/// The rows; every key of `TrainingArguments` is one of its keys too.
pub const RULES: &[Rule] = &[
    row("finetuning_type", By(kind)),
    row("cutoff_len", Count(|d| &mut d.seq)),
    row("lora_target", By(super::common::targets)),
    row("additional_target", By(super::common::save)),
    row("quantization_bit", By(bits)),
    row("double_quantization", Flag(|d| &mut d.double_quant)),
    row("quantization_type", By(super::common::quant_type)),
    row("quantization_method", Free),
    row("disable_gradient_checkpointing", By(without_checkpointing)),
    row("pure_bf16", By(pure)),
    row("flash_attn", By(flash)),
    row("enable_liger_kernel", By(liger)),
    row("neat_packing", Flag(|d| &mut d.packing)),
    row("use_unsloth", Beyond("transformers' own layers are estimated")),
    row("use_unsloth_gc", By(offloaded)),
    row("upcast_layernorm", Beyond("norms are estimated in the type of the base")),
    row("upcast_lmhead_output", Beyond("the head's output is estimated as the model has it")),
    row("use_galore", Beyond("GaLore is not estimated")),
    row("use_apollo", Beyond("APOLLO is not estimated")),
    row("use_badam", Beyond("BAdam is not estimated")),
    row("freeze_trainable_layers", Free),
    row("use_reentrant_gc", Flag(|d| &mut d.reentrant)),
    row("stage", By(stage)),
    row("template", Free),
    row("dataset", Free),
    row("dataset_dir", Free),
    row("max_samples", Free),
    row("overwrite_cache", Free),
    row("preprocessing_num_workers", Free),
    row("plot_loss", Free),
    row("val_size", Free),
    row("rope_scaling", Free),
    row("mix_strategy", Free),
];
