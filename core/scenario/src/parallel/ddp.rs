//! `[parallel.ddp]`: DistributedDataParallel.

use super::Parallel;
use crate::lever::{Group, Kind, Near, Written, levers};
use crate::{Mode, limits};

levers! {
    /// `[parallel.ddp]`: the arguments of `DistributedDataParallel`.
    pub struct Ddp = "parallel.ddp", ddp of Parallel {
        /// Size at which a bucket of gradients closes, in MiB (2^20 bytes). Where it is said, the first bucket closes there
        /// too; else the first one closes at 1 MiB (`dist._DEFAULT_FIRST_BUCKET_BYTES`) and the others at 25.
        pub bucket_cap_mb: Option<u64> = None => {
            link: "bucket_cap_mb",
            kind: Kind::Count { most: limits::BUCKET },
            label: "Bucket size, MiB",
            help: "bucket_cap_mb",
            otherwise: "1 MiB for the first bucket, 25 MiB for the others",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.25),
        }
        /// Whether gradients are views into the buckets instead of copies beside them.
        pub gradient_as_bucket_view: bool = false => {
            link: "bucket_view",
            label: "Gradients as bucket views",
            help: "gradient_as_bucket_view: gradients lie in the buckets instead of beside them",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.5),
        }
        /// Whether the graph is the same in every step (`static_graph`).
        pub static_graph: bool = false => {
            link: "static_graph",
            label: "Static graph",
            help: "static_graph: the same parameters are used in every step",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.5),
        }
        /// Whether every forward looks for parameters that it does not use: its outputs are then cloned.
        pub find_unused_parameters: bool = false => {
            link: "find_unused",
            label: "Unused parameters looked for",
            help: "find_unused_parameters: every output of the model, the logits too, is cloned",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// Whether buffers are broadcast from the first rank in every forward.
        pub broadcast_buffers: bool = true => {
            link: "broadcast_buffers",
            label: "Buffers broadcast",
            help: "broadcast_buffers: in every forward that synchronises",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.25),
        }
        /// Whether all micro-batches of a step but the last run under `no_sync()`.
        pub no_sync: bool = true => {
            link: "no_sync",
            label: "Synchronised once a step",
            help: "no_sync() around all micro-batches of a step but the last",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.5),
        }
    }
}
