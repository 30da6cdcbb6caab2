//! Accelerate's YAML, as `accelerate config` writes it.

use plimsoll_scenario::ParallelStrategy;
use serde_json::Value;

use super::common::row;
use super::deepspeed;
use crate::draft::Draft;
use crate::rule::{Does, Heard, Rule, count};

use Does::{Beyond, By, Count, Degree, Free};

/// Nothing but what is said: `mixed_precision` is `no` unless it is.
pub fn defaults(_: &mut Draft) {}

fn kind(draft: &mut Draft, value: &Value) -> Heard {
    use ParallelStrategy as S;
    let strategy = match value.as_str() {
        Some("NO") => return Heard::Taken,
        Some("MULTI_GPU") => S::Ddp,
        // fsdp_version, where it is said, stands below and is read after this.
        Some("FSDP") => S::Fsdp1,
        Some("DEEPSPEED") => draft.strategy.unwrap_or(S::Zero2),
        Some("MEGATRON_LM") => S::Megatron,
        Some(other) => return Heard::Beyond(format!("{other} is not estimated")),
        None => return Heard::wrong("MULTI_GPU, FSDP or DEEPSPEED"),
    };
    draft.strategy = Some(strategy);
    Heard::Taken
}

/// `mixed_precision`: no, fp16, bf16.
pub fn mixed(draft: &mut Draft, value: &Value) -> Heard {
    let (bf16, fp16) = match value.as_str() {
        Some("bf16") => (true, false),
        Some("fp16") => (false, true),
        Some("no") => (false, false),
        Some(other) => return Heard::Beyond(format!("{other} is not estimated")),
        // YAML's `no` is false.
        None if value.as_bool() == Some(false) => (false, false),
        None => return Heard::wrong("no, fp16 or bf16"),
    };
    draft.bf16 = Some(bf16);
    draft.fp16 = Some(fp16);
    Heard::Taken
}

fn processes(draft: &mut Draft, value: &Value) -> Heard {
    match count(value) {
        Some(cards) => {
            draft.gpus = Some(cards);
            Heard::Taken
        }
        None => Heard::wrong("a whole number"),
    }
}

/// The rows.
pub const RULES: &[Rule] = &[
    row("distributed_type", By(kind)),
    row("mixed_precision", By(mixed)),
    row("num_processes", By(processes)),
    row("num_machines", Count(|d| &mut d.nodes)),
    row("gradient_accumulation_steps", Count(|d| &mut d.accumulation)),
    row("deepspeed_config.zero_stage", By(deepspeed::stage)),
    row("deepspeed_config.gradient_accumulation_steps", Count(|d| &mut d.accumulation)),
    row("deepspeed_config.gradient_clipping", By(super::common::clip)),
    row("deepspeed_config.offload_optimizer_device", By(deepspeed::offload)),
    row("deepspeed_config.offload_param_device", By(deepspeed::offload_param)),
    row("deepspeed_config.deepspeed_config_file", Beyond("DeepSpeed's own file says it: give it too")),
    row("deepspeed_config.*", Free),
    row("parallelism_config.parallelism_config_dp_replicate_size", Degree(|d| &mut d.replicate)),
    row("parallelism_config.parallelism_config_tp_size", Degree(|d| &mut d.tensor)),
    row("parallelism_config.parallelism_config_cp_size", Degree(|d| &mut d.context)),
    row("parallelism_config.*", Free),
    row("dynamo_config.*", Free),
    row("dynamo_backend", Free),
    row("compute_environment", Free),
    row("debug", Free),
    row("downcast_bf16", Free),
    row("enable_cpu_affinity", Free),
    row("gpu_ids", Free),
    row("machine_rank", Free),
    row("main_process_ip", Free),
    row("main_process_port", Free),
    row("main_training_function", Free),
    row("rdzv_backend", Free),
    row("same_network", Free),
    row("tpu_*", Free),
    row("use_cpu", Free),
];
