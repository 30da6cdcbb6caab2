//! The `gpu_optimization` block that trainers of one's own carry: what may be used, and how it is to be kept to.

use serde_json::Value;

use super::common::row;
use crate::draft::{Draft, Dtype};
use crate::rule::{Does, Heard, Rule, flag, number};
use crate::settle::memory_of;

use Does::{By, Count, Free};

/// Nothing but what is said.
pub fn defaults(_: &mut Draft) {}

fn mixed(draft: &mut Draft, value: &Value) -> Heard {
    match flag(value) {
        Some(on) => {
            draft.bf16 = Some(on);
            if !on {
                draft.weights = Some(Dtype::Float32);
            }
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

/// A part of the memory, as 0.9 or as 90.
fn target(draft: &mut Draft, value: &Value) -> Heard {
    match number(value).map(|n| if n > 1.0 { n / 100.0 } else { n }) {
        Some(part) if part > 0.0 && part <= 1.0 => {
            draft.budget.target = Some(part);
            Heard::Taken
        }
        _ => Heard::wrong("a part of the memory, 0 to 1"),
    }
}

/// The rows, within the block and without it.
pub const RULES: &[Rule] = &[
    row("gpu_optimization.max_memory_gb", By(memory_of)),
    row("gpu_optimization.use_mixed_precision", By(mixed)),
    row("gpu_optimization.gradient_accumulation_steps", Count(|d| &mut d.accumulation)),
    row("gpu_optimization.target_utilization", By(target)),
    row("gpu_optimization.dynamic_batch_sizing", Free),
    row("gpu_optimization.memory_monitoring", Free),
    row("gpu_optimization.*", Free),
    row("max_memory_gb", By(memory_of)),
    row("use_mixed_precision", By(mixed)),
    row("target_utilization", By(target)),
    row("dynamic_batch_sizing", Free),
    row("memory_monitoring", Free),
];
