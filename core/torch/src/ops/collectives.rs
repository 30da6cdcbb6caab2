//! Collectives, and the kernels around them: what was gathered is cut into parameters, gradients are laid out to be scattered.
//!
//! A collective takes nothing from PyTorch's allocator: it is written down as a launch, with what this card gives to it and what
//! it gets. The kernels around it are told by a table in the card's memory which block of threads copies what; it is all they
//! take for themselves.

use std::rc::Rc;

use super::inplace::copy_over;
use super::inside::Scratch;
use crate::Op;
use crate::tensor::{Context, DType, Tensor};

/// What leaves the card or comes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Every card gets the parts of all.
    AllGather,
    /// Every card gets its part of the sum.
    ReduceScatter,
    /// Every card gets the sum.
    AllReduce,
    /// Every card gets what the first has.
    Broadcast,
    /// From the machine's memory.
    ToCard,
    /// To the machine's memory.
    ToHost,
}

impl Transfer {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::AllGather, Self::ReduceScatter, Self::AllReduce, Self::Broadcast, Self::ToCard, Self::ToHost];

    /// The op that it is written down as: of `ProcessGroupNCCL`, or as the profiler names a copy.
    pub const fn op(self) -> Op {
        match self {
            Self::AllGather => Op::AllGatherBase,
            Self::ReduceScatter => Op::ReduceScatterBase,
            Self::AllReduce => Op::AllReduceInPlace,
            Self::Broadcast => Op::Broadcast,
            Self::ToCard => Op::MemcpyToCard,
            Self::ToHost => Op::MemcpyToHost,
        }
    }
}

/// Writes down a transfer of which `whole` numbers are the larger side: what is gathered, scattered, summed or copied; `ranks`
/// are the cards that take part. The other side of a gathering or scattering is one card's part.
pub fn transfer(cx: &Rc<Context>, kind: Transfer, whole: u64, ranks: u64, dtype: DType) {
    let bytes = whole.saturating_mul(dtype.size());
    let part = bytes / ranks.max(1);
    let (read, written) = match kind {
        Transfer::AllGather => (part, bytes),
        Transfer::ReduceScatter => (bytes, part),
        Transfer::AllReduce | Transfer::Broadcast => (bytes, bytes),
        Transfer::ToCard => (0, bytes),
        Transfer::ToHost => (bytes, 0),
    };
    drop(cx.launch(kind.op(), &[]).of(dtype).reads(read).writes(written));
}

/// What a block of threads copies in one round: 128 threads, 16 bytes each (`aten/src/ATen/native/cuda/TensorShape.cu`).
const BLOCK: u64 = 2048;
const THREADS: u64 = 128;
/// Rounds of blocks that a card is given at most, before a block copies more than once.
const WAVES: u64 = 2;

/// `split_with_sizes_copy`: cuts what was gathered of so many `ranks`, of which every card's part has pieces of these bytes. The table is
/// gone when it returns. Of the rounds that a block copies, some are of further cards' parts of its piece, and only the others make it
/// longer (`split_with_sizes_copy_out_cuda_contiguous_no_cast`).
pub fn split_with_sizes_copy(cx: &Rc<Context>, pieces: impl Iterator<Item = u64> + Clone, ranks: u64) {
    let machine = cx.machine();
    let most = machine.multiprocessors.saturating_mul(machine.threads / THREADS).saturating_mul(WAVES).max(1);
    let blocks = |of: u64| pieces.clone().fold(0u64, |sum, bytes| sum.saturating_add(bytes.div_ceil(of)));
    let rounds = blocks(BLOCK).saturating_mul(ranks).div_ceil(most).max(1);
    let root = rounds.isqrt();
    let parts = (root + u64::from(root * root < rounds)).min(ranks.max(1));
    let count = pieces.clone().count() as u64;
    // Of each piece two addresses, its size and where its blocks begin; of each block its piece.
    let table = blocks(BLOCK.saturating_mul(rounds.div_ceil(parts))).saturating_add(4 * count + 1);
    drop(Scratch::converted(cx, Op::SplitWithSizesCopy, &[table], DType::Int64));
}

/// `_chunk_cat` along the first dimension into what is reduced, in `out`: lays the chunks that every one of `ranks` cards gets of
/// each tensor side by side, chunks of so many numbers. One kernel does it where the dtype stays, and from bfloat16 to float32; its
/// table is gone when it returns. Else what is not a whole number of chunks is copied to one that is, and all are joined
/// (`_chunk_cat_out_cuda`, and `_pad_chunk` of `aten/src/ATen/native/TensorShape.cpp`).
pub fn chunk_cat(cx: &Rc<Context>, tensors: &[(&Tensor, u64)], ranks: u64, out: DType) {
    let given = tensors.first().map_or(out, |(tensor, _)| tensor.dtype());
    if given == out || (given, out) == (DType::BFloat16, DType::Float32) {
        let blocks = |chunk: u64| chunk.saturating_mul(out.size()).div_ceil(BLOCK);
        let blocks = tensors.iter().fold(0u64, |sum, (_, chunk)| sum.saturating_add(blocks(*chunk)));
        let table = blocks.saturating_add(6 * tensors.len() as u64 + 2);
        drop(Scratch::converted(cx, Op::ChunkCat, &[table], DType::Int64));
        return;
    }
    let padded = |(tensor, chunk): &(&Tensor, u64)| {
        let numel = chunk.saturating_mul(ranks);
        let padded = (numel != tensor.numel()).then(|| cx.launch(Op::NewZeros, &[]).make_sizes(&[numel], given))?;
        copy_over(&padded, tensor);
        Some(padded)
    };
    for padded in tensors.iter().filter_map(padded).collect::<Vec<Tensor>>() {
        drop(padded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::testing::{forward, input_of, made, watch};
    use crate::tensor::{Kernels, Machine};

    /// `_chunk_cat_out_cuda` has a kernel for what keeps its dtype and for bfloat16 to float32; the rest is padded.
    #[test]
    fn what_no_kernel_lays_together_is_padded() {
        let cx = forward();
        let laid = |given, out| {
            let tensors = [input_of(&cx, &[7, 4], given), input_of(&cx, &[8, 4], given)];
            let chunks: Vec<(&Tensor, u64)> = tensors.iter().map(|tensor| (tensor, 16)).collect();
            let (events, ()) = watch(&cx, || chunk_cat(&cx, &chunks, 2, out));
            made(&events).contains(&"new_zeros")
        };
        assert!(laid(DType::Float16, DType::Float32));
        assert!(!laid(DType::BFloat16, DType::Float32));
        assert!(!laid(DType::Float16, DType::Float16));
    }

    /// A card of 108 multiprocessors, each of 2048 threads, takes 3456 blocks at once. What eight cards gathered, two pieces of 1,282,048
    /// bytes of each, makes 10016 of them: three rounds, two of which are of one card's part and two of another's. As a hollow A100 says.
    #[test]
    fn what_many_cards_gathered_is_cut_in_longer_blocks() {
        let cx = forward();
        cx.set_machine(Machine { kernels: Kernels::Cuda(8, 0), multiprocessors: 108, threads: 2048, ..cx.machine() });
        let table = |ranks| {
            let (events, ()) = watch(&cx, || split_with_sizes_copy(&cx, [1_282_048; 2].into_iter(), ranks));
            events
        };
        assert_eq!(table(1), ["+split_with_sizes_copy [1261] int64", "-split_with_sizes_copy [1261] int64"]);
        assert_eq!(table(8), ["+split_with_sizes_copy [635] int64", "-split_with_sizes_copy [635] int64"]);
    }
}
