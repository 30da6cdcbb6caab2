//! The backward of an embedding.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ledger::{Law, Rows, Rule};

use super::Scratch;
use super::cub::Keys;
use crate::Op;
use crate::tensor::{Context, DType, Geometry};

/// Up to this many tokens one kernel adds everything up without a buffer (`embedding_dense_backward_cuda` in
/// `aten/src/ATen/native/cuda/Embedding.cu`).
const AT_ONCE: u64 = 3072;
/// How many rows one warp sums (`NROWS_PER_THREAD` in `EmbeddingBackwardKernel.cu`).
const ROWS_PER_WARP: u64 = 10;
/// Threads in a warp, and at most in a block.
const WARP: u64 = 32;
const BLOCK: u64 = 1024;
/// `MAX_ATOMIC_ACCUM_BLOCKS_PER_SM` in `EmbeddingBackwardKernel.cu`.
const ATOMIC_BLOCKS: u64 = 4;

/// Before the gradient is made: the token numbers are sorted, and kept sorted with their order.
pub fn sorted_indices<'c>(cx: &'c Rc<Context>, op: Op, tokens: u64) -> Option<Scratch<'c>> {
    if tokens <= AT_ONCE {
        return None;
    }
    let mut scratch = Scratch::of(cx, op)?;
    scratch.hold(&[tokens], DType::Int64);
    scratch.hold(&[tokens], DType::Int64);
    scratch.sort_with_range(tokens, Keys::Numbers(DType::Int64));
    Some(scratch)
}

/// After the gradient of `table` was made, in `dtype`: the rows' beginnings, and partial sums of every row in float32
/// (`embedding_backward_cuda_kernel` in `EmbeddingBackwardKernel.cu`, since PyTorch 1.13; pytorch pull request 78588). Few
/// rows with many tokens each are added up in place instead, half ones in a float32 table ([`rules::EMBEDDING_ATOMICS`]).
/// Rows that occur and partial sums of them are no lines over the batch: each says its law.
pub fn after_sorting(scratch: &mut Scratch<'_>, table: &Geometry, dtype: DType, tokens: u64) {
    let machine = scratch.cx.machine();
    let (rows, width) = (table.size(0), table.size(1));
    let segments = tokens.min(rows);
    let partial = tokens / ROWS_PER_WARP + segments;
    let cx = scratch.cx;
    scratch.hold(&[tokens], DType::Int64);
    let law = |storage, unit, tokens_per_part| {
        cx.law(Law { storage, count: tokens, rule: Rule::Rows(Rows { rows, unit, tokens_per_part }) });
    };
    let number = DType::Int64.size();
    scratch.hold(&[], DType::Int64);
    // The sorted numbers once more, without those that follow an equal one (`unique_by_key`).
    scratch.hold(&[tokens], DType::Int64);
    scratch.cub_unique(tokens);
    scratch.release(1);
    law(scratch.hold(&[segments], DType::Int64), number, 0);
    law(scratch.hold(&[segments], DType::Int64), number, 0);
    scratch.cub_sum(tokens, number, rows);
    scratch.hold(&[], DType::Int64);
    law(scratch.hold(&[partial], DType::Int64), number, ROWS_PER_WARP);
    let padded = width.next_multiple_of(WARP);
    let grid = (segments * padded).div_ceil(padded.clamp(1, BLOCK));
    let in_place = machine.rules.has(&rules::EMBEDDING_ATOMICS)
        && grid < machine.multiprocessors * ATOMIC_BLOCKS
        && partial > grid * 4;
    if !in_place {
        let sums = scratch.hold(&[partial, width], DType::Float32);
        law(sums, width.saturating_mul(DType::Float32.size()), ROWS_PER_WARP);
        return;
    }
    law(scratch.hold(&[partial], DType::Int64), number, ROWS_PER_WARP);
    if dtype.is_half() {
        scratch.hold(&[rows, width], DType::Float32);
    }
}
