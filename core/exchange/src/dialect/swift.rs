//! ms-swift's command line: `swift sft --model ... --train_type lora`.

use plimsoll_scenario::ParallelStrategy;
use serde_json::Value;

use super::common::{adapter, attention, model, row};
use super::transformers;
use crate::draft::{Draft, Dtype, Reentrant, Targets};
use crate::rule::{Does, Heard, Rule, count};

use Does::{Beyond, By, Count, Free};

/// transformers' defaults, and its own (swift/llm/argument): a micro-batch of 1, adapters of rank 8 on every linear layer, a base
/// in the type of its checkpoint, which is bfloat16, checkpointing on, reentrant but under DistributedDataParallel
/// (`_fix_gradient_checkpointing` of swift/trainers/mixin.py).
pub fn defaults(draft: &mut Draft) {
    transformers::arguments(draft);
    draft.batch = Some(1);
    draft.adapters = Some(true);
    draft.rank = Some(8);
    draft.targets = Some(Targets::All);
    draft.weights = Some(Dtype::Bfloat16);
    draft.bf16 = Some(true);
    draft.checkpointing = Some(true);
    draft.reentrant_unsaid = Some(Reentrant::ButUnderDdp);
}

fn bits(draft: &mut Draft, value: &Value) -> Heard {
    match count(value) {
        Some(4) => draft.four_bit = Some(true),
        Some(8) => draft.eight_bit = Some(true),
        _ => return Heard::wrong("4 or 8"),
    }
    Heard::Taken
}

fn deepspeed(draft: &mut Draft, value: &Value) -> Heard {
    use ParallelStrategy as S;
    let word = value.as_str().unwrap_or_default();
    draft.strategy = Some(match word.trim_end_matches("_offload") {
        "zero0" => S::Zero0,
        "zero1" => S::Zero1,
        "zero2" => S::Zero2,
        "zero3" => S::Zero3,
        _ => return Heard::Beyond(format!("DeepSpeed's own file says it: give {word} too")),
    });
    if word.ends_with("_offload") {
        return Heard::Beyond("what is offloaded is estimated on the card".to_owned());
    }
    Heard::Taken
}

/// The rows; every key of `TrainingArguments` is one of its keys too.
pub const RULES: &[Rule] = &[
    row("model", By(model)),
    row("model_id_or_path", By(model)),
    row("train_type", By(adapter)),
    row("tuner_type", By(adapter)),
    row("sft_type", By(adapter)),
    row("quant_bits", By(bits)),
    row("quant_method", Free),
    row("attn_impl", By(attention)),
    row("deepspeed", By(deepspeed)),
    row("sequence_parallel_size", Count(|d| &mut d.context)),
    row("vit_gradient_checkpointing", Free),
    row("freeze_vit", Free),
    row("freeze_llm", Beyond("every part of the model is estimated alike")),
    row("freeze_aligner", Free),
    row("dataset", Free),
    row("val_dataset", Free),
    row("split_dataset_ratio", Free),
    row("system", Free),
    row("model_author", Free),
    row("model_name", Free),
    row("truncation_strategy", Free),
    row("lazy_tokenize", Free),
    row("template", Free),
    row("streaming", Free),
    row("load_from_cache_file", Free),
];
