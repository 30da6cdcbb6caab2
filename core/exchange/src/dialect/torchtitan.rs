//! torchtitan: TOML until February 2026, options of the command line since then, and since August of that year micro-batches in
//! tokens. The three have most names in common.

use plimsoll_scenario::{OptimizerImpl, ParallelStrategy, PolicyDtype, Wrap};
use serde_json::Value;

use super::common::{clip, optimizer_class, param_dtype, recompute, recomputed, reduce_dtype, reshard, row, weights};
use crate::draft::{Draft, Dtype, Recomputed};
use crate::rule::{Does, Heard, Rule, count};

use Does::{Beyond, By, Count, Degree, Flag, Free};

/// torchtitan v0.2's `config/job_config.py`: batch 8 of 2048 tokens, float32 weights gathered in bfloat16 and reduced in float32,
/// fused AdamW, the norm clipped at 1, every other layer recomputed.
pub fn defaults(draft: &mut Draft) {
    draft.batch = Some(8);
    draft.seq = Some(2048);
    draft.weights = Some(Dtype::Float32);
    draft.bf16 = Some(false);
    draft.implementation = Some(OptimizerImpl::Fused);
    draft.checkpointing = Some(true);
    (draft.partly, draft.recomputed) = (true, Some(Recomputed::Every(2)));
    draft.clip = Some(true);
    draft.adapters = Some(false);
    draft.strategy = Some(ParallelStrategy::Fsdp2);
    draft.wrap = Some(Wrap::Torchtitan);
    draft.param_dtype = Some(PolicyDtype::Bf16);
    draft.reduce_dtype = Some(PolicyDtype::Fp32);
    draft.remark("torchtitan's own modules are estimated as transformers' of the same model");
}

fn flavor(draft: &mut Draft, value: &Value) -> Heard {
    match value.as_str() {
        // `model.name` stands before it, as torchtitan's own files have it.
        Some(flavor) => {
            draft.model = Some(match &draft.model {
                Some(name) if !name.contains('/') => format!("{name}-{flavor}"),
                _ => flavor.to_owned(),
            });
            Heard::Taken
        }
        None => Heard::wrong("a name"),
    }
}

fn name(draft: &mut Draft, value: &Value) -> Heard {
    let Some(name) = value.as_str() else { return Heard::wrong("a name") };
    // What torchtitan calls llama3 are Llama 3.1's sizes.
    draft.model = Some(if name == "llama3" { "llama-3.1".to_owned() } else { name.to_owned() });
    Heard::Taken
}

/// Tokens of a micro-batch: samples of the length that was said before it.
fn tokens(draft: &mut Draft, value: &Value) -> Heard {
    let (Some(tokens), Some(seq)) = (count(value), draft.seq) else { return Heard::wrong("a whole number") };
    draft.batch = Some((tokens / seq).max(1));
    Heard::Taken
}

fn implementation(draft: &mut Draft, value: &Value) -> Heard {
    draft.implementation = Some(match value.as_str() {
        Some("fused") => OptimizerImpl::Fused,
        Some("foreach") => OptimizerImpl::Foreach,
        Some("for-loop") => OptimizerImpl::ForLoop,
        Some(other) => return Heard::Beyond(format!("{other} is not estimated")),
        None => return Heard::wrong("fused, foreach or for-loop"),
    });
    Heard::Taken
}

/// The rows.
pub const RULES: &[Rule] = &[
    row("model.name", By(name)),
    row("model.flavor", By(flavor)),
    row("model.*", Free),
    row("training.local_batch_size", Count(|d| &mut d.batch)),
    row("training.batch_size", Count(|d| &mut d.batch)),
    row("training.global_batch_size", Degree(|d| &mut d.global_batch)),
    row("training.seq_len", Count(|d| &mut d.seq)),
    row("training.max_context_length", Count(|d| &mut d.seq)),
    row("training.num_tokens_per_microbatch_per_dp_rank", By(tokens)),
    row("training.dtype", By(weights)),
    row("training.mixed_precision_param", By(param_dtype)),
    row("training.mixed_precision_reduce", By(reduce_dtype)),
    row("training.enable_cpu_offload", Flag(|d| &mut d.cpu_offload)),
    row("training.max_norm", By(clip)),
    row("training.compile", Flag(|d| &mut d.compile)),
    row("training.num_tokens_per_train_step", Beyond("one micro-batch a step is estimated")),
    row("training.*", Free),
    row("compile.enable", Flag(|d| &mut d.compile)),
    row("compile.*", Free),
    row("optimizer.name", By(optimizer_class)),
    row("optimizer.implementation", By(implementation)),
    row("optimizer.early_step_in_backward", Beyond("the optimizer is estimated after backward")),
    row("optimizer.*", Free),
    row("activation_checkpoint.mode", By(recompute)),
    row("activation_checkpoint.selective_ac_option", By(recomputed)),
    row("activation_checkpoint.*", Free),
    // All cards that are left, which is what their number says.
    row("parallelism.data_parallel_shard_degree", Free),
    row("parallelism.data_parallel_replicate_degree", Degree(|d| &mut d.replicate)),
    row("parallelism.fsdp_reshard_after_forward", By(reshard)),
    row("parallelism.tensor_parallel_degree", Count(|d| &mut d.tensor)),
    row("parallelism.context_parallel_degree", Count(|d| &mut d.context)),
    row("parallelism.pipeline_parallel_degree", Count(|d| &mut d.pipeline)),
    row("parallelism.expert_parallel_degree", Count(|d| &mut d.expert)),
    row("parallelism.*", Free),
    row("job.*", Free),
    row("profiling.*", Free),
    row("metrics.*", Free),
    row("lr_scheduler.*", Free),
    row("checkpoint.*", Free),
    row("comm.*", Free),
    row("quantize.*", Beyond("float8 is not estimated")),
    row("float8.*", Beyond("float8 is not estimated")),
    row("validation.*", Free),
    row("debug.*", Free),
    row("experimental.*", Free),
    row("memory_estimation.*", Free),
    row("fault_tolerance.*", Free),
];
