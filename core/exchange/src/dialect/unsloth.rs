//! Unsloth's notebooks: `FastLanguageModel.from_pretrained` and `get_peft_model`; the training itself is trl's.

use plimsoll_scenario::ActivationOffloading;
use serde_json::Value;

use super::common::{model, row, targets, weights};
use crate::draft::{Draft, Dtype};
use crate::rule::{Does, Heard, Rule, flag};

use Does::{Beyond, By, Chance, Count, Flag, Free};

/// `from_pretrained()`: 2048 tokens, 4 bits (unsloth/models/loader.py). Its norms, rotary positions and gated activations
/// (unsloth/kernels) keep what Liger's keep; those of its adapters, which keep less than peft's, are not followed.
pub fn loaded(draft: &mut Draft) {
    draft.seq = Some(2048);
    draft.four_bit = Some(true);
    draft.weights = Some(Dtype::Bfloat16);
    draft.like_liger = true;
    draft.remark(
        "Liger's kernels stand for Unsloth's where they are followed, and its adapters' own keep less than is estimated: plimsoll rehearse \
         runs the script itself, without a card",
    );
}

/// `get_peft_model()`: rank 16, adapters in float32, whose trainer does not cast them, checkpoints reentrant, what layers keep in the
/// machine's memory (unsloth/models/llama.py).
pub fn adapters(draft: &mut Draft) {
    draft.adapters = Some(true);
    draft.rank = Some(16);
    draft.adapters_in_float32 = Some(true);
    draft.checkpointing = Some(true);
    draft.reentrant = Some(true);
    draft.offloading = Some(ActivationOffloading::CheckpointInputs);
}

/// `"unsloth"` keeps the input of each layer but the last in the machine's memory, and two buffers of one on the card
/// (`UnslothCheckpointFunction` of unsloth_zoo/gradient_checkpointing.py).
fn checkpointing(draft: &mut Draft, value: &Value) -> Heard {
    let away = value.as_str() == Some("unsloth");
    let Some(on) = flag(value).or(away.then_some(true)) else {
        return Heard::wrong("true, false or \"unsloth\"");
    };
    draft.checkpointing = Some(on);
    draft.offloading = away.then_some(ActivationOffloading::CheckpointInputs);
    Heard::Taken
}

fn full(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            if on {
                draft.four_bit = Some(false);
                draft.adapters = Some(false);
            }
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

/// `FastLanguageModel.from_pretrained`.
pub const LOADED: &[Rule] = &[
    row("0", By(model)),
    row("model_name", By(model)),
    row("max_seq_length", Count(|d| &mut d.seq)),
    row("load_in_4bit", Flag(|d| &mut d.four_bit)),
    row("load_in_8bit", Flag(|d| &mut d.eight_bit)),
    row("load_in_16bit", Free),
    row("full_finetuning", By(full)),
    row("dtype", By(weights)),
    row("load_in_fp8", Beyond("float8 is not estimated")),
    row("offload_embedding", Beyond("the embedding is estimated on the card")),
    row("fast_inference", Beyond("vLLM beside the training is not estimated")),
    row("gpu_memory_utilization", Free),
    row("max_lora_rank", Free),
    row("token", Free),
    row("device_map", Free),
    row("trust_remote_code", Free),
];

/// `FastLanguageModel.get_peft_model`.
pub const ADAPTERS: &[Rule] = &[
    row("r", By(super::common::rank)),
    row("target_modules", By(targets)),
    row("lora_dropout", Chance(|d| &mut d.dropout)),
    row("use_gradient_checkpointing", By(checkpointing)),
    row("modules_to_save", By(super::common::save)),
    row("use_dora", Flag(|d| &mut d.dora)),
    row("lora_alpha", Free),
    row("bias", Beyond("biases are estimated frozen")),
    row("random_state", Free),
    row("use_rslora", Free),
    row("loftq_config", Free),
    row("max_seq_length", Free),
    row("finetune_*", Free),
];
