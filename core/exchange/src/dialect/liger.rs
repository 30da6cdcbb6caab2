//! liger-kernel as it is applied by hand: `AutoLigerKernelForCausalLM` and `apply_liger_kernel_to_llama(model=model, ...)`.

use serde_json::Value;

use super::common::row;
use crate::draft::Draft;
use crate::rule::{Does, Heard, Rule, flag};

use Does::{By, Flag, Free};

/// How it is put in the place of a model's own, for the models that are followed and for whichever it is.
pub const CALLS: &[&str] = &[
    "_apply_liger_kernel_to_instance",
    "_apply_liger_kernel",
    "apply_liger_kernel_to_llama",
    "apply_liger_kernel_to_mistral",
    "apply_liger_kernel_to_qwen2",
    "apply_liger_kernel_to_qwen3",
    "apply_liger_kernel_to_gemma",
    "apply_liger_kernel_to_gemma2",
    "apply_liger_kernel_to_gemma3_text",
    "apply_liger_kernel_to_glm4",
    "apply_liger_kernel_to_phi3",
    "apply_liger_kernel_to_smollm3",
    "apply_liger_kernel_to_olmo2",
    "apply_liger_kernel_to_olmo3",
];

/// All that there are, and the fused loss.
pub fn applied(draft: &mut Draft) {
    draft.liger = Some(true);
}

/// Liger's cross-entropy of logits that are there.
pub fn cross_entropy(_: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(false) => Heard::Taken,
        Some(true) => Heard::Beyond("the model's own loss stands for Liger's cross-entropy of logits".to_owned()),
        None => Heard::wrong("true or false"),
    }
}

/// Which of them.
pub const KERNELS: &[Rule] = &[
    row("rope", Flag(|d| &mut d.liger_parts[0])),
    row("rms_norm", Flag(|d| &mut d.liger_parts[1])),
    row("swiglu", Flag(|d| &mut d.liger_parts[2])),
    row("geglu", Flag(|d| &mut d.liger_parts[2])),
    row("fused_linear_cross_entropy", Flag(|d| &mut d.liger_loss)),
    row("cross_entropy", By(cross_entropy)),
    row("model", Free),
    row("model_type", Free),
];
