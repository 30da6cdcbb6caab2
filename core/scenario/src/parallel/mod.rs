//! `[parallel]`: several cards, and how the training is spread over them.
//!
//! Every key is named as the library that reads it names it. What the engine does not run yet is read, carried and refused by
//! name in [`Scenario::estimated`], so that a scenario of somebody who measured it can be written down today.

mod check;
mod ddp;
mod fsdp;
mod zero;

use plimsoll_ground::Result;
use serde_json::Value;

use super::lever::{Field, Group, Kind, Lever, Near, Written, levers};
use super::recipe::words;
use super::{Mode, Scenario, limits};

pub(crate) use check::{check, estimated};
pub use ddp::Ddp;
pub use fsdp::{BackwardPrefetch, Fsdp, LoadFrom, PolicyDtype, Reshard, ShardingStrategy, Wrap};
pub use zero::{Offload, Zero};

/// Where the keys of a strategy stand.
pub mod strategies {
    pub use super::ddp::at as ddp;
    pub use super::fsdp::at as fsdp;
    pub use super::zero::at as zero;
}

levers! {
    /// `[parallel]`: several cards; absent: one.
    pub struct Parallel = "parallel", parallel of Scenario {
        /// Cards in all (the world size): one process each.
        pub gpus: u64 = 1 => {
            link: "gpus",
            kind: Kind::Count { most: limits::CARDS },
            label: "Cards",
            help: "How many cards train together, one process each",
            group: Group::Parallel,
            slide: Some((1, 64)),
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            near: Near::octaves(0.5, 2.0),
        }
        /// Cards in one machine.
        pub per_node: u64 = 8 => {
            link: "per_node",
            kind: Kind::Count { most: limits::CARDS_OF_A_NODE },
            label: "Cards in a machine",
            help: "Of more cards than these, several machines are made",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            near: Near::unlike(0.25),
        }
        /// How the training is spread over the cards.
        pub strategy: ParallelStrategy = ParallelStrategy::None, or strategy => {
            link: "strategy",
            label: "Strategy",
            otherwise: "none on one card; on several ddp",
            group: Group::Parallel,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(4.0),
        }
        /// Hybrid sharding: copies of the group of cards that shares one model, under FSDP2.
        pub replicate: u64 = 1 => {
            link: "replicate",
            kind: Kind::Count { most: limits::CARDS },
            label: "Copies of the shard group",
            help: "Hybrid sharding under FSDP2: the cards are divided into so many groups, each with a whole model",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(4.0),
        }
        /// Degree of tensor parallelism. Only 1 is estimated.
        pub tensor: u64 = 1 => {
            link: "tensor",
            kind: Kind::Count { most: limits::CARDS },
            label: "Tensor parallel",
            help: "Cards that share every matrix; only 1 is estimated yet",
            group: Group::Later,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(4.0),
        }
        /// Degree of context parallelism. Only 1 is estimated.
        pub context: u64 = 1 => {
            link: "context",
            kind: Kind::Count { most: limits::CARDS },
            label: "Context parallel",
            help: "Cards that share every sequence; only 1 is estimated yet",
            group: Group::Later,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(4.0),
        }
        /// Degree of expert parallelism. Only 1 is estimated.
        pub expert: u64 = 1 => {
            link: "expert",
            kind: Kind::Count { most: limits::CARDS },
            label: "Expert parallel",
            help: "Cards that share the experts of a mixture; only 1 is estimated yet",
            group: Group::Later,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(4.0),
        }
        /// Degree of pipeline parallelism. Only 1 is estimated.
        pub pipeline: u64 = 1 => {
            link: "pipeline",
            kind: Kind::Count { most: limits::CARDS },
            label: "Pipeline parallel",
            help: "Stages of layers, each on cards of its own; only 1 is estimated yet",
            group: Group::Later,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(4.0),
        }
        /// Tensor parallel: whether what lies between the matrices is cut along the sequence.
        pub sequence_parallel: bool = false => {
            link: "sequence_parallel",
            label: "Sequence parallel",
            help: "Tensor parallel: norms and dropouts cut along the sequence; not estimated yet",
            group: Group::Later,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// Tensor parallel: whether the loss is computed on logits that stay cut.
        pub loss_parallel: bool = false => {
            link: "loss_parallel",
            label: "Loss parallel",
            help: "Tensor parallel: the loss on logits that stay cut; not estimated yet",
            group: Group::Later,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// Pipeline parallel: in which order micro-batches pass.
        pub schedule: Schedule = Schedule::OneForwardOneBackward => {
            link: "schedule",
            label: "Schedule",
            help: "Pipeline parallel: in which order micro-batches pass; not estimated yet",
            group: Group::Later,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// Pipeline parallel: micro-batches of a step.
        pub pipeline_micro_batches: u64 = 1 => {
            link: "pipeline_micro_batches",
            kind: Kind::Count { most: limits::CARDS },
            label: "Micro-batches in the pipeline",
            help: "Pipeline parallel: micro-batches of a step; not estimated yet",
            group: Group::Later,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// DistributedDataParallel's own keys.
        pub ddp: Ddp = Ddp::default() => [Ddp]
        /// The keys of FSDP.
        pub fsdp: Fsdp = Fsdp::default() => [Fsdp]
        /// The keys of DeepSpeed's ZeRO.
        pub zero: Zero = Zero::default() => [Zero]
    }
}

words!(
    /// How a training is spread over several cards. All are read; all but `megatron` are estimated.
    ParallelStrategy {
        /// One card.
        None = "none",
        /// torch.nn.DataParallel: one process that copies the model to every card before each forward.
        DataParallel = "data-parallel" as "DataParallel",
        /// torch.nn.parallel.DistributedDataParallel: a whole model on every card, gradients averaged in buckets.
        Ddp = "ddp" as "DDP",
        /// torch.distributed.fsdp.fully_shard: parameters, gradients and states cut over the cards, gathered block by block.
        Fsdp2 = "fsdp2" as "FSDP2",
        /// torch.distributed.fsdp.FullyShardedDataParallel: the same with one flat parameter a block.
        Fsdp1 = "fsdp1" as "FSDP1",
        /// DeepSpeed's engine without ZeRO (stage 0): nothing is cut.
        Zero0 = "zero-0" as "ZeRO-0",
        /// DeepSpeed ZeRO stage 1: master weights and states cut over the cards.
        Zero1 = "zero-1" as "ZeRO-1",
        /// DeepSpeed ZeRO stage 2: gradients as well.
        Zero2 = "zero-2" as "ZeRO-2",
        /// DeepSpeed ZeRO stage 3: parameters too, gathered module by module.
        Zero3 = "zero-3" as "ZeRO-3",
        /// Megatron-LM's own. Not estimated yet.
        Megatron = "megatron" as "Megatron",
    }
);

words!(
    /// In which order the micro-batches of a pipeline pass (`torch.distributed.pipelining`).
    Schedule {
        /// `Schedule1F1B`.
        OneForwardOneBackward = "1f1b" as "1F1B",
        /// `ScheduleGPipe`.
        GPipe = "gpipe" as "GPipe",
        /// `ScheduleInterleaved1F1B`.
        Interleaved = "interleaved-1f1b" as "interleaved 1F1B",
        /// `ScheduleInterleavedZeroBubble`.
        ZeroBubble = "zero-bubble" as "zero bubble",
    }
);

impl ParallelStrategy {
    /// Those that are estimated.
    pub const ESTIMATED: [Self; 9] = [
        Self::None,
        Self::DataParallel,
        Self::Ddp,
        Self::Fsdp2,
        Self::Fsdp1,
        Self::Zero0,
        Self::Zero1,
        Self::Zero2,
        Self::Zero3,
    ];

    /// Whether DeepSpeed's engine runs it.
    pub const fn is_zero(self) -> bool {
        matches!(self, Self::Zero0 | Self::Zero1 | Self::Zero2 | Self::Zero3)
    }
}

impl Parallel {
    /// Machines that the cards stand in.
    pub const fn nodes(&self) -> u64 {
        self.gpus.div_ceil(if self.per_node == 0 { 1 } else { self.per_node })
    }

    /// Cards of a machine that take part.
    pub const fn local(&self) -> u64 {
        if self.gpus < self.per_node { self.gpus } else { self.per_node }
    }
}

/// Several cards without a word on how are what most begin with.
fn strategy(scenario: &Scenario) -> ParallelStrategy {
    if scenario.parallel.gpus > 1 { ParallelStrategy::Ddp } else { ParallelStrategy::None }
}
