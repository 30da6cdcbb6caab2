//! The kernels around a collective: what was gathered is cut into parameters, gradients are laid out to be scattered.
//!
//! Both are told by a table in the card's memory which block of threads copies what. It is all they take for themselves.

use std::rc::Rc;

use super::inside::Scratch;
use crate::Op;
use crate::tensor::{Context, DType};

/// What a block of threads copies in one round: 128 threads, 16 bytes each (`aten/src/ATen/native/cuda/TensorShape.cu`).
const BLOCK: u64 = 2048;
const THREADS: u64 = 128;
/// Rounds of blocks that a card is given at most, before a block copies more than once.
const WAVES: u64 = 2;

/// `split_with_sizes_copy`: cuts what was gathered, of which every card's part has pieces of these bytes. The table is gone
/// when it returns.
pub fn split_with_sizes_copy(cx: &Rc<Context>, pieces: impl Iterator<Item = u64> + Clone) {
    let machine = cx.machine();
    let most = machine.multiprocessors.saturating_mul(machine.threads / THREADS).saturating_mul(WAVES).max(1);
    let blocks = |of: u64| pieces.clone().fold(0u64, |sum, bytes| sum.saturating_add(bytes.div_ceil(of)));
    let rounds = blocks(BLOCK).div_ceil(most).max(1);
    let count = pieces.clone().count() as u64;
    // Of each piece two addresses, its size and where its blocks begin; of each block its piece.
    let table = blocks(BLOCK.saturating_mul(rounds)).saturating_add(4 * count + 1);
    drop(Scratch::converted(cx, Op::SplitWithSizesCopy, &[table], DType::Int64));
}

/// `_chunk_cat` along the first dimension: lays every card's chunk of each tensor side by side, chunks of these bytes. The
/// table is gone when it returns.
pub fn chunk_cat(cx: &Rc<Context>, chunks: impl Iterator<Item = u64> + Clone) {
    let blocks = chunks.clone().fold(0u64, |sum, bytes| sum.saturating_add(bytes.div_ceil(BLOCK)));
    let table = blocks.saturating_add(6 * chunks.count() as u64 + 2);
    drop(Scratch::converted(cx, Op::ChunkCat, &[table], DType::Int64));
}
