//! DeepSpeed's JSON.

use plimsoll_scenario::{Offload, ParallelStrategy};
use serde_json::Value;

use super::common::{clip, optimizer_class, row};
use crate::draft::Draft;
use crate::rule::{Does, Heard, Rule};

use Does::{Amount, Beyond, By, Count, Flag, Free};

/// Nothing but what is said.
pub fn defaults(_: &mut Draft) {}

/// `zero_optimization.stage`.
pub fn stage(draft: &mut Draft, value: &Value) -> Heard {
    use ParallelStrategy as S;
    draft.strategy = Some(match value.as_u64() {
        Some(0) => S::Zero0,
        Some(1) => S::Zero1,
        Some(2) => S::Zero2,
        Some(3) => S::Zero3,
        _ => return Heard::wrong("0, 1, 2 or 3"),
    });
    Heard::Taken
}

/// `offload_optimizer.device`.
pub fn offload(draft: &mut Draft, value: &Value) -> Heard {
    draft.offload_optimizer = Some(match value.as_str() {
        Some("none") => Offload::None,
        Some("cpu") => Offload::Cpu,
        Some("nvme") => Offload::Nvme,
        _ => return Heard::wrong("none, cpu or nvme"),
    });
    Heard::Taken
}

/// `offload_param.device`.
pub fn offload_param(draft: &mut Draft, value: &Value) -> Heard {
    draft.stage3.offload = Some(match value.as_str() {
        Some("none") => Offload::None,
        Some("cpu") => Offload::Cpu,
        Some("nvme") => Offload::Nvme,
        _ => return Heard::wrong("none, cpu or nvme"),
    });
    Heard::Taken
}

/// `offload_optimizer.ratio`: how much of the optimizer is offloaded at all.
fn ratio(_: &mut Draft, value: &Value) -> Heard {
    match value.as_f64() {
        Some(1.0) => Heard::Taken,
        Some(_) => Heard::Beyond("the whole optimizer is estimated where it is offloaded to".to_owned()),
        None => Heard::wrong("a number from 0 to 1"),
    }
}

/// The rows.
pub const RULES: &[Rule] = &[
    row("zero_optimization.stage", By(stage)),
    row("train_micro_batch_size_per_gpu", Count(|d| &mut d.batch)),
    row("train_batch_size", Count(|d| &mut d.global_batch)),
    row("gradient_accumulation_steps", Count(|d| &mut d.accumulation)),
    row("gradient_clipping", By(clip)),
    row("bf16.enabled", Flag(|d| &mut d.bf16)),
    row("bfloat16.enabled", Flag(|d| &mut d.bf16)),
    row("fp16.enabled", Flag(|d| &mut d.fp16)),
    row("fp16.*", Free),
    row("optimizer.type", By(optimizer_class)),
    row("optimizer.params.*", Free),
    row("scheduler.*", Free),
    row("zero_optimization.reduce_bucket_size", Count(|d| &mut d.reduce_bucket)),
    row("zero_optimization.overlap_comm", Flag(|d| &mut d.overlap)),
    row("zero_optimization.offload_optimizer.device", By(offload)),
    row("zero_optimization.offload_param.device", By(offload_param)),
    row("zero_optimization.offload_optimizer.buffer_count", Count(|d| &mut d.stage3.buffers)),
    row("zero_optimization.offload_param.buffer_count", Count(|d| &mut d.stage3.param_buffers)),
    row("zero_optimization.offload_param.buffer_size", Count(|d| &mut d.stage3.param_buffer)),
    row("zero_optimization.offload_param.max_in_cpu", Amount(|d| &mut d.stage3.param_max_in_cpu)),
    row("zero_optimization.offload_optimizer.ratio", By(ratio)),
    row("aio.block_size", Count(|d| &mut d.stage3.aio_block)),
    row("aio.intra_op_parallelism", Count(|d| &mut d.stage3.aio_threads)),
    row("aio.use_gds", Beyond("what is swapped is estimated in the machine's memory")),
    row("aio.*", Free),
    row("zero_optimization.stage3_prefetch_bucket_size", Amount(|d| &mut d.stage3.prefetch)),
    row("zero_optimization.prefetch_bucket_size", Amount(|d| &mut d.stage3.prefetch)),
    row("zero_optimization.stage3_max_live_parameters", Amount(|d| &mut d.stage3.live)),
    row("zero_optimization.max_live_parameters", Amount(|d| &mut d.stage3.live)),
    row("zero_optimization.stage3_max_reuse_distance", Amount(|d| &mut d.stage3.reuse)),
    row("zero_optimization.max_reuse_distance", Amount(|d| &mut d.stage3.reuse)),
    row("zero_optimization.stage3_param_persistence_threshold", Amount(|d| &mut d.stage3.persistence)),
    row("zero_optimization.param_persistence_threshold", Amount(|d| &mut d.stage3.persistence)),
    row("zero_optimization.sub_group_size", Count(|d| &mut d.stage3.sub_group)),
    row("zero_optimization.contiguous_gradients", Flag(|d| &mut d.stage3.contiguous)),
    row("zero_optimization.reduce_scatter", Flag(|d| &mut d.stage3.scatters)),
    row("zero_optimization.stage3_module_granularity_threshold", Beyond("modules are gathered one by one")),
    row("zero_optimization.zero_quantized_weights", Beyond("parameters are gathered in their own type")),
    row("zero_optimization.zero_quantized_gradients", Beyond("gradients are reduced in their own type")),
    row("zero_optimization.zero_hpz_partition_size", Beyond("one partition over all cards is estimated")),
    row("zero_optimization.*", Free),
    row("activation_checkpointing.cpu_checkpointing", Beyond("activations are estimated on the card")),
    row("activation_checkpointing.partition_activations", Beyond("activations are estimated whole")),
    row("activation_checkpointing.*", Free),
    row("tensor_parallel.autotp_size", Count(|d| &mut d.tensor)),
    row("sequence_parallel_size", Count(|d| &mut d.context)),
    row("data_types.grad_accum_dtype", Beyond("gradients are estimated in their own type")),
    row("zero_allow_untested_optimizer", Free),
    row("zero_force_ds_cpu_optimizer", Free),
    row("steps_per_print", Free),
    row("wall_clock_breakdown", Free),
    row("communication_data_type", Free),
    row("flops_profiler.*", Free),
    row("tensorboard.*", Free),
    row("comms_logger.*", Free),
    row("prescale_gradients", Free),
];
