//! `[parallel.zero]`: DeepSpeed's `zero_optimization`.

use plimsoll_ground::Result;
use serde_json::Value;

use super::Parallel;
use crate::lever::{Field, Group, Kind, Lever, Near, Written, levers};
use crate::recipe::words;
use crate::{Mode, limits};

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
        /// Whether reducing overlaps with backward, which takes a second buffer.
        pub overlap_comm: bool = false => {
            link: "overlap_comm",
            label: "Communication overlaps",
            help: "overlap_comm: a second buffer in stages 1 and 2",
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
            help: "offload_optimizer.device: what lies in the machine's memory is not estimated",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(4.0),
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
    }
);
