//! `[parallel.zero]`: DeepSpeed's `zero_optimization`.

use plimsoll_ground::Result;
use serde_json::Value;

use super::{Parallel, ParallelStrategy};
use crate::lever::{Field, Group, Kind, Lever, Near, Written, levers};
use crate::recipe::words;
use crate::{Mode, Scenario, limits};

levers! {
    /// `[parallel.zero]`: the keys of DeepSpeed's `zero_optimization` that move memory.
    pub struct Zero = "parallel.zero", zero of Parallel {
        /// Numbers (not bytes) that gradients are reduced in at a time: a buffer of as many is there during backward, whatever the
        /// model's size.
        pub reduce_bucket_size: u64 = 500_000_000 => {
            link: "reduce_bucket",
            kind: Kind::Count { most: limits::ZERO_BUCKET },
            label: "Reduced at a time",
            help: "reduce_bucket_size, in numbers: a buffer that large is on the card during backward",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(2.0),
        }
        /// Whether communication overlaps with what computes: a second buffer in stages 1 and 2, streams of their own in stage 3.
        pub overlap_comm: bool = false, or overlaps => {
            link: "overlap_comm",
            label: "Communication overlaps",
            help: "overlap_comm: a second buffer in stages 1 and 2, streams of their own in stage 3",
            otherwise: "on in stage 3, else off",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// Where master weights and states lie.
        pub offload_optimizer: Offload = Offload::None => {
            link: "offload_optimizer",
            label: "Optimizer offloaded",
            help: "offload_optimizer.device: master weights, states and gradients in the machine's memory",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(4.0),
        }
        /// Whether what is offloaded lies in page-locked memory (`pin_memory` of `offload_optimizer` and `offload_param`, which DeepSpeed
        /// has on).
        pub offload_pin_memory: bool = true => {
            link: "zero_pin",
            label: "Page-locked",
            help: "pin_memory of offload_optimizer and offload_param: page-locked memory is rounded up to powers of two",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.25),
        }
        /// Stage 3: numbers of parameters that are gathered ahead whenever a module runs.
        pub prefetch_bucket_size: u64 = 50_000_000 => {
            link: "prefetch",
            kind: Kind::Amount { least: 1, most: limits::ZERO_BUCKET },
            label: "Gathered ahead",
            help: "stage3_prefetch_bucket_size, in numbers: how much is gathered ahead at every module",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// Stage 3: numbers of parameters that may be whole before nothing more is gathered ahead.
        pub max_live_parameters: u64 = 1_000_000_000 => {
            link: "max_live",
            kind: Kind::Amount { least: 1, most: limits::ZERO_BUCKET },
            label: "Whole at a time",
            help: "stage3_max_live_parameters, in numbers: beyond them nothing is gathered ahead",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(2.0),
        }
        /// Stage 3: a parameter that is used again before so many numbers have passed stays whole.
        pub max_reuse_distance: u64 = 1_000_000_000 => {
            link: "max_reuse",
            kind: Kind::Amount { least: 1, most: limits::ZERO_BUCKET },
            label: "Kept for the next use",
            help: "stage3_max_reuse_distance, in numbers: what is used again within them stays whole",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(2.0),
        }
        /// Stage 3: parameters of up to so many numbers stay whole.
        pub param_persistence_threshold: u64 = 100_000 => {
            link: "persistence",
            kind: Kind::Amount { least: 1, most: limits::ZERO_BUCKET },
            label: "Always whole up to",
            help: "stage3_param_persistence_threshold, in numbers: smaller parameters stay whole",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.5),
        }
        /// Stage 3: numbers of a card's own that the optimizer steps at a time.
        pub sub_group_size: u64 = 1_000_000_000 => {
            link: "sub_group",
            kind: Kind::Count { most: limits::ZERO_BUCKET },
            label: "Stepped at a time",
            help: "sub_group_size, in numbers of a card's own",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// Stage 3: whether gradients are copied into one bucket as they come, which is then there for good.
        pub contiguous_gradients: bool = true => {
            link: "contiguous_gradients",
            label: "Gradients in one buffer",
            help: "contiguous_gradients: they are copied into a bucket as they come",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(2.0),
        }
        /// Stage 3: whether every card gets its part of averaged gradients only.
        pub reduce_scatter: bool = true => {
            link: "reduce_scatter",
            label: "Reduced by parts",
            help: "reduce_scatter instead of all-reduce",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.5),
        }
        /// Stage 3: where the cards' parts of parameters lie.
        pub offload_param: Offload = Offload::None => {
            link: "offload_param",
            label: "Parameters offloaded",
            help: "offload_param.device, of stage 3: the cards' parts of parameters in the machine's memory",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(3.0),
        }
        /// Optimizer on NVMe: page-locked buffers that states pass through, each as large as the largest sub-group's part in float32.
        pub offload_buffer_count: u64 = 4 => {
            link: "swap_buffers",
            kind: Kind::Count { most: limits::SWAP_BUFFERS },
            label: "Swap buffers",
            help: "buffer_count of offload_optimizer on NVMe: each as large as the largest sub-group's part in float32",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.25),
        }
        /// Parameters on NVMe: page-locked buffers that they pass through.
        pub offload_param_buffer_count: u64 = 5 => {
            link: "param_buffers",
            kind: Kind::Count { most: limits::SWAP_BUFFERS },
            label: "Parameters' swap buffers",
            help: "buffer_count of offload_param on NVMe",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.25),
        }
        /// Parameters on NVMe: numbers of each of those buffers, which no card's part of a parameter may exceed.
        pub offload_param_buffer_size: u64 = 100_000_000 => {
            link: "param_buffer",
            kind: Kind::Count { most: limits::ZERO_BUCKET },
            label: "Their size",
            help: "buffer_size of offload_param on NVMe, in numbers: no card's part of a parameter may have more",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.25),
        }
        /// Parameters on NVMe: so many numbers of a card's own lie in the machine's memory all the same.
        pub offload_param_max_in_cpu: u64 = 1_000_000_000 => {
            link: "param_max_in_cpu",
            kind: Kind::Amount { least: 1, most: limits::ZERO_BUCKET },
            label: "Parameters that stay in memory",
            help: "max_in_cpu of offload_param on NVMe, in numbers of a card's own",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.5),
        }
        /// `aio.block_size`, in bytes: what is smaller, or than 1 MiB, does not go to NVMe.
        pub aio_block_size: u64 = 1_048_576 => {
            link: "aio_block",
            kind: Kind::Count { most: limits::ZERO_BUCKET },
            label: "Least that is swapped",
            help: "block_size of aio, in bytes: what is smaller does not go to NVMe",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.25),
        }
        /// `aio.intra_op_parallelism`: what goes to NVMe is a multiple of 1 KiB for each of these threads.
        pub aio_intra_op_parallelism: u64 = 1 => {
            link: "aio_threads",
            kind: Kind::Count { most: limits::SWAP_BUFFERS },
            label: "Threads of a request",
            help: "intra_op_parallelism of aio: files are multiples of 1 KiB for each",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.25),
        }
    }
}

words!(
    /// Where DeepSpeed puts what it offloads.
    Offload {
        /// On the card.
        None = "none" as "on the card",
        /// In the machine's own memory.
        Cpu = "cpu" as "in the machine's memory",
        /// On NVMe, by way of the machine's memory; of stage 3 alone.
        Nvme = "nvme" as "on NVMe",
    }
);

/// `overlap_comm_valid` of DeepSpeed's `zero/config.py`.
fn overlaps(scenario: &Scenario) -> bool {
    scenario.parallel.strategy == ParallelStrategy::Zero3
}
