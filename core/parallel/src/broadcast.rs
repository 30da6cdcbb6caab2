//! `_broadcast_coalesced` (`torch/csrc/distributed/c10d/comm.cpp`): tensors of the first rank, sent in flat pieces.

use std::collections::VecDeque;
use std::rc::Rc;

use plimsoll_torch::ops::{self, Rearrangement, Transfer};
use plimsoll_torch::tensor::{Context, DType, Kind, Tensor};

use crate::buckets;

/// `broadcast_bucket_size` of DistributedDataParallel: 250 MiB.
pub const PIECE: u64 = 250 << 20;

/// `max_in_flight` of `broadcast_coalesced`.
const IN_FLIGHT: usize = 2;

/// A tensor that is sent: how many numbers, of which type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub numel: u64,
    pub dtype: DType,
}

impl Sent {
    /// What it takes.
    pub const fn bytes(self) -> u64 {
        self.numel.saturating_mul(self.dtype.size())
    }
}

/// Sends `tensors`, in pieces of [`PIECE`]. A piece of several is put together into one flat copy; one alone is sent as it
/// lies (`flatten_dense_tensors`). Two pieces are on their way at a time.
pub fn coalesced(cx: &Rc<Context>, tensors: &[Sent], ranks: u64) {
    let mut on_their_way: VecDeque<Option<Tensor>> = VecDeque::new();
    for piece in buckets::assign(tensors, &[PIECE], None) {
        if on_their_way.len() == IN_FLIGHT {
            drop(on_their_way.pop_front());
        }
        let members: Vec<Sent> = piece.iter().filter_map(|index| tensors.get(*index)).copied().collect();
        let flat = match members.as_slice() {
            [_] | [] => None,
            [first, ..] => {
                let numel = members.iter().fold(0u64, |sum, sent| sum.saturating_add(sent.numel));
                let cat = || ops::rearrangement(cx, Rearrangement::Cat, &[numel], first.dtype);
                Some(cx.counting_as(Kind::Forward, cat))
            }
        };
        if let Some(first) = members.first() {
            let numel = members.iter().fold(0u64, |sum, sent| sum.saturating_add(sent.numel));
            ops::transfer(cx, Transfer::Broadcast, numel, ranks, first.dtype);
        }
        on_their_way.push_back(flat);
    }
    while let Some(piece) = on_their_way.pop_front() {
        drop(piece);
    }
}
