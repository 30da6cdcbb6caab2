//! FSDP's keys as Accelerate writes them, with `fsdp_` before each, and as `fsdp_config` of transformers and Axolotl has them,
//! without.

use plimsoll_scenario::{BackwardPrefetch, Reshard, ShardingStrategy, Wrap};
use serde_json::Value;

use super::common::{fsdp_version, reshard, row};
use crate::draft::Draft;
use crate::rule::{Does, Heard, Rule};

use Does::{By, Flag, Free};

fn sharding(draft: &mut Draft, value: &Value) -> Heard {
    // Accelerate writes the name, older ones its number.
    let word = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.to_ascii_uppercase(),
        _ => return Heard::wrong("a sharding strategy"),
    };
    match word.as_str() {
        "FULL_SHARD" | "1" => {
            draft.sharding = Some(ShardingStrategy::FullShard);
            draft.reshard = Some(Reshard::Unset);
        }
        "SHARD_GRAD_OP" | "2" => {
            draft.sharding = Some(ShardingStrategy::ShardGradOp);
            draft.reshard = Some(Reshard::False);
        }
        "NO_SHARD" | "3" => draft.sharding = Some(ShardingStrategy::NoShard),
        "HYBRID_SHARD" | "4" | "HYBRID_SHARD_ZERO2" | "5" => {
            draft.replicate = draft.nodes.or(draft.replicate).or(Some(2))
        }
        _ => return Heard::wrong("FULL_SHARD, SHARD_GRAD_OP, NO_SHARD or HYBRID_SHARD"),
    }
    Heard::Taken
}

fn wrap(draft: &mut Draft, value: &Value) -> Heard {
    draft.wrap = Some(match value.as_str() {
        Some("TRANSFORMER_BASED_WRAP") => Wrap::Layer,
        Some("NO_WRAP") => Wrap::Root,
        _ => return Heard::Beyond("this wrapping is not estimated: every layer is a unit".to_owned()),
    });
    Heard::Taken
}

fn prefetch(draft: &mut Draft, value: &Value) -> Heard {
    let word = value.as_str().map(str::to_ascii_uppercase);
    draft.backward_prefetch = Some(match word.as_deref() {
        Some("BACKWARD_PRE") => BackwardPrefetch::Pre,
        Some("BACKWARD_POST") => BackwardPrefetch::Post,
        Some("NO_PREFETCH") => BackwardPrefetch::None,
        _ => return Heard::wrong("BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH"),
    });
    Heard::Taken
}

/// The rows, with and without what stands before them.
pub const RULES: &[Rule] = &[
    row("fsdp_config.fsdp_version", By(fsdp_version)),
    row("fsdp_config.version", By(fsdp_version)),
    row("fsdp_config.fsdp_sharding_strategy", By(sharding)),
    row("fsdp_config.sharding_strategy", By(sharding)),
    row("fsdp_config.fsdp_reshard_after_forward", By(reshard)),
    row("fsdp_config.reshard_after_forward", By(reshard)),
    row("fsdp_config.fsdp_auto_wrap_policy", By(wrap)),
    row("fsdp_config.auto_wrap_policy", By(wrap)),
    row("fsdp_config.fsdp_use_orig_params", Flag(|d| &mut d.orig_params)),
    row("fsdp_config.use_orig_params", Flag(|d| &mut d.orig_params)),
    row("fsdp_config.fsdp_backward_prefetch", By(prefetch)),
    row("fsdp_config.backward_prefetch", By(prefetch)),
    row("fsdp_config.fsdp_offload_params", Flag(|d| &mut d.cpu_offload)),
    row("fsdp_config.offload_params", Flag(|d| &mut d.cpu_offload)),
    row("fsdp_config.fsdp_activation_checkpointing", Flag(|d| &mut d.checkpointing)),
    row("fsdp_config.activation_checkpointing", Flag(|d| &mut d.checkpointing)),
    row("fsdp_config.*", Free),
    row("fsdp_version", By(fsdp_version)),
];
