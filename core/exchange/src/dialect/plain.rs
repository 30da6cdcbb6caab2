//! A loop of one's own: what is called in it, and names in capitals that are set before it.

use plimsoll_scenario::{ActivationOffloading, ParallelStrategy};
use serde_json::Value;

use super::common::{compute_dtype, foreach, fused, model, row, weights};
use crate::draft::{Draft, Dtype, Reentrant};
use crate::rule::{Does, Heard, Rule};

use Does::{By, Chance, Count, Flag, Free};

/// `torch.autocast("cuda")`: float16 unless a type is given.
pub fn autocast(draft: &mut Draft) {
    draft.bf16 = Some(false);
    draft.fp16 = Some(true);
}

/// A call that is what it says.
pub fn checkpointing(draft: &mut Draft) {
    draft.checkpointing = Some(true);
}

/// `loss.backward()`: whoever writes the loop clips only what he says.
pub fn own_loop(draft: &mut Draft) {
    draft.clip = Some(false);
}

/// `clip_grad_norm_`.
pub fn clips(draft: &mut Draft) {
    draft.clip = Some(true);
}

/// `register_post_accumulate_grad_hook`: who asks for it steps there.
pub fn steps_in_backward(draft: &mut Draft) {
    draft.in_backward = Some(true);
}

/// `save_on_cpu`.
pub fn saves_on_cpu(draft: &mut Draft) {
    draft.offloading = Some(ActivationOffloading::SaveOnCpu);
}

/// What our own scripts call the checkpoint whose input waits in the machine's memory.
pub const OFFLOADED: &str = "offloaded_checkpoint";

/// [`OFFLOADED`].
pub fn offloads_inputs(draft: &mut Draft) {
    draft.offloading = Some(ActivationOffloading::CheckpointInputs);
}

/// TRL's `get_act_offloading_ctx_manager`.
pub fn offloads_activations(draft: &mut Draft) {
    draft.offloading = Some(ActivationOffloading::OffloadActivations);
}

/// `prepare_model_for_kbit_training`, which hands `torch.utils.checkpoint` no word of whether it is reentrant: then it is
/// (peft/utils/other.py, torch/utils/checkpoint.py of 2.11).
pub fn prepares(draft: &mut Draft) {
    draft.prepare_kbit = Some(true);
    draft.checkpointing = Some(draft.checkpointing.unwrap_or(true));
    draft.reentrant_unsaid = draft.reentrant_unsaid.or(Some(Reentrant::WithoutTrainer));
}

/// `DistributedDataParallel`.
pub fn ddp(draft: &mut Draft) {
    draft.strategy = Some(ParallelStrategy::Ddp);
}

/// `fully_shard`.
pub fn fsdp2(draft: &mut Draft) {
    draft.strategy = Some(ParallelStrategy::Fsdp2);
}

fn autocast_dtype(draft: &mut Draft, value: &Value) -> Heard {
    let (bf16, fp16) = match value.as_str().and_then(Dtype::named) {
        Some(Dtype::Bfloat16) => (true, false),
        Some(Dtype::Float16) => (false, true),
        _ => return Heard::wrong("torch.bfloat16 or torch.float16"),
    };
    draft.bf16 = Some(bf16);
    draft.fp16 = Some(fp16);
    Heard::Taken
}

/// `torch.autocast`.
pub const AUTOCAST: &[Rule] = &[row("dtype", By(autocast_dtype)), row("device_type", Free), row("enabled", Free)];

/// An optimizer's own arguments.
pub const OPTIMIZER: &[Rule] = &[
    row("fused", By(fused)),
    row("foreach", By(foreach)),
    row("lr", Free),
    row("weight_decay", Free),
    row("betas", Free),
    row("eps", Free),
    row("momentum", By(momentum)),
    row("amsgrad", Flag(|d| &mut d.amsgrad)),
    row("params", Free),
];

fn momentum(draft: &mut Draft, value: &Value) -> Heard {
    use plimsoll_scenario::Optimizer as O;
    let on = value.as_f64().is_some_and(|momentum| momentum > 0.0);
    draft.optimizer = match draft.optimizer {
        Some(O::Sgd | O::SgdMomentum) => Some(if on { O::SgdMomentum } else { O::Sgd }),
        Some(O::RmsProp | O::RmsPropMomentum) => Some(if on { O::RmsPropMomentum } else { O::RmsProp }),
        other => other,
    };
    Heard::Taken
}

fn zero(draft: &mut Draft, value: &Value) -> Heard {
    match crate::rule::flag(value) {
        Some(none) => {
            draft.zeros = Some(!none);
            Heard::Taken
        }
        None => Heard::wrong("true or false"),
    }
}

/// `zero_grad`.
pub const ZERO_GRAD: &[Rule] = &[row("set_to_none", By(zero))];

/// `DataLoader`.
pub const LOADER: &[Rule] = &[row("batch_size", Count(|d| &mut d.batch))];

/// `DistributedDataParallel`.
pub const DDP: &[Rule] = &[
    row("bucket_cap_mb", Count(|d| &mut d.bucket_cap_mb)),
    row("gradient_as_bucket_view", Flag(|d| &mut d.bucket_view)),
    row("static_graph", Flag(|d| &mut d.static_graph)),
    row("find_unused_parameters", Flag(|d| &mut d.find_unused)),
    row("broadcast_buffers", Flag(|d| &mut d.broadcast_buffers)),
    row("device_ids", Free),
];

/// Names that are set: as our own loop has them, and as most have.
pub const NAMES: &[Rule] = &[
    row("MODEL", By(model)),
    row("model_name", By(model)),
    row("model_id", By(model)),
    row("MICRO_BATCH", Count(|d| &mut d.batch)),
    row("ACCUMULATION", Count(|d| &mut d.accumulation)),
    row("SEQUENCE", Count(|d| &mut d.seq)),
    row("block_size", Count(|d| &mut d.seq)),
    row("max_seq_length", Count(|d| &mut d.seq)),
    row("batch_size", Count(|d| &mut d.batch)),
    row("WEIGHTS", By(weights)),
    row("LABEL_SMOOTHING", Chance(|d| &mut d.smoothing)),
    row("COMPUTE", By(compute_dtype)),
];
