//! Unsloth's notebooks: `FastLanguageModel.from_pretrained` and `get_peft_model`; the training itself is trl's.

use serde_json::Value;

use super::common::{model, row, targets, weights};
use crate::draft::{Draft, Dtype};
use crate::rule::{Does, Heard, Rule, flag};

use Does::{Beyond, By, Chance, Count, Flag, Free};

/// `from_pretrained()`: 2048 tokens, 4 bits (unsloth/models/loader.py).
pub fn loaded(draft: &mut Draft) {
    draft.seq = Some(2048);
    draft.four_bit = Some(true);
    draft.weights = Some(Dtype::Bfloat16);
    draft.remark("Unsloth's own kernels keep less than transformers' layers, which are estimated");
}

/// `get_peft_model()`: rank 16, checkpoints reentrant, what layers keep in the machine's memory (unsloth/models/llama.py).
pub fn adapters(draft: &mut Draft) {
    draft.adapters = Some(true);
    draft.rank = Some(16);
    draft.checkpointing = Some(true);
    draft.reentrant = Some(true);
}

fn checkpointing(draft: &mut Draft, value: &Value) -> Heard {
    match (flag(value), value.as_str()) {
        (Some(on), _) => draft.checkpointing = Some(on),
        (_, Some("unsloth")) => {
            draft.checkpointing = Some(true);
            return Heard::Beyond("what layers keep is estimated on the card, where Unsloth offloads it".to_owned());
        }
        _ => return Heard::wrong("true, false or \"unsloth\""),
    }
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
