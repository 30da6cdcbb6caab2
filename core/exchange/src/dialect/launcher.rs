//! What starts the processes: torchrun, `accelerate launch`, DeepSpeed's launcher.

use super::common::{row, visible};
use super::{accelerate, common};
use crate::rule::{Does, Rule};

use Does::{By, Count, Free};

/// The rows, tried before those of the script that is started.
pub const RULES: &[Rule] = &[
    row("env.CUDA_VISIBLE_DEVICES", By(visible)),
    row("env.NPROC_PER_NODE", Count(|d| &mut d.per_node)),
    row("env.NNODES", Count(|d| &mut d.nodes)),
    row("env.*", Free),
    row("nproc_per_node", Count(|d| &mut d.per_node)),
    row("nnodes", Count(|d| &mut d.nodes)),
    row("num_gpus", Count(|d| &mut d.per_node)),
    row("num_nodes", Count(|d| &mut d.nodes)),
    row("num_processes", Count(|d| &mut d.gpus)),
    row("num_machines", Count(|d| &mut d.nodes)),
    row("mixed_precision", By(accelerate::mixed)),
    row("fsdp_version", By(common::fsdp_version)),
    row("standalone", Free),
    row("node_rank", Free),
    row("master_addr", Free),
    row("master_port", Free),
    row("rdzv_*", Free),
    row("config_file", Free),
    row("multi_gpu", Free),
    row("main_process_port", Free),
    row("machine_rank", Free),
    row("num_cpu_threads_per_process", Free),
];
