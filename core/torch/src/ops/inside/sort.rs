//! Sorting indices, which a gradient that adds up rows begins with.

use std::rc::Rc;

use super::Scratch;
use crate::Op;
use crate::tensor::{Context, DType, Geometry};

/// Up to this many numbers a row is sorted in place (`should_use_small_sort` in `aten/src/ATen/native/cuda/SortStable.h`).
const IN_PLACE: u64 = 4096;

impl Scratch<'_> {
    /// `cub::DeviceRadixSort::SortPairs` of `n` 8-byte keys with 8-byte values, gone before this returns: a copy of both
    /// beside what it was given (`cub/device/dispatch/dispatch_radix_sort.cuh`, the one-sweep sort of compute capability 7.0
    /// and up; its counters, less than a fiftieth of that, are left out; up to 2304 keys are sorted in place, in less than
    /// the 36 KiB counted here, so that sizes stay lines over the batch). The values it was given, `at::arange(n)`, go with it.
    pub(super) fn sort_with_range(&mut self, n: u64) {
        self.hold(&[n], DType::Int64);
        self.hold(&[2, n], DType::Int64);
        self.release(2);
    }

    /// Rows that lie together, each longer than one that is sorted in place: gone before this returns.
    fn sort_rows(&mut self, numbers: u64, length: u64, dtype: DType) {
        /// `rough heuristics where even a single sort occupies GPU`
        const ALONE: u64 = 1_000_000;
        let before = self.held.len();
        let rows = numbers.checked_div(length).unwrap_or(0);
        // What cub takes beside what it is given, a copy of keys and values, is one buffer.
        let sorted = if rows == 1 || length >= ALONE {
            self.hold(&[length], DType::Int64);
            length
        } else if rows < 128 {
            // Places and rows as two times 32 bits, all sorted by number and then by row; the sorted numbers are nobody's.
            self.hold(&[numbers], DType::Int64);
            self.hold(&[numbers], DType::Int64);
            self.hold(&[numbers], dtype);
            numbers
        } else {
            self.hold(&[numbers], DType::Int64);
            numbers
        };
        self.hold(&[sorted.saturating_mul(dtype.size() + DType::Int64.size())], DType::UInt8);
        self.release(self.held.len() - before);
    }
}

/// `index_put_(accumulate=True)` of `rows` row numbers, the backward of picking rows: the positions, as they are behind zero, are
/// made offsets; what is added, `values`, is made row-major; sorted positions and their order, kept until it is done; the sort
/// (`computeLinearIndex` and `index_put_with_sort_kernel` in `aten/src/ATen/native/cuda/Indexing.cu`).
pub fn accumulate_rows<'c>(
    cx: &'c Rc<Context>,
    op: Op,
    rows: u64,
    (values, dtype): (&Geometry, DType),
) -> Option<Scratch<'c>> {
    let mut scratch = Scratch::of(cx, op)?;
    scratch.hold(&[rows], DType::Int64);
    scratch.hold(&[rows], DType::Int64);
    scratch.held.remove(0);
    if !values.is_contiguous() {
        scratch.hold(values.dims(), dtype);
    }
    for _ in 0..2 {
        scratch.hold(&[rows], DType::Int64);
    }
    scratch.sort_with_range(rows);
    Some(scratch)
}

/// `sort` along a dimension, and `values` and `indices` are there: its positions, or copies that the sort of many rows takes
/// (`sort_cuda_kernel` in `aten/src/ATen/native/cuda/Sort.cpp`, `do_launch_stable_sort_kernel` in `SortStable.cu`). cub's counters, up to 28 KB,
/// are left out.
pub fn sort<'c>(cx: &'c Rc<Context>, op: Op, x: &Geometry, dim: usize, dtype: DType) -> Option<Scratch<'c>> {
    let (&length, &stride) = (x.dims().get(dim)?, x.strides().get(dim)?);
    let mut scratch = Scratch::of(cx, op)?;
    if length <= IN_PLACE {
        scratch.hold(&[length], DType::Int64);
        return Some(scratch);
    }
    if stride != 1 || !x.is_dense() {
        scratch.hold(x.dims(), dtype);
    }
    if stride != 1 {
        scratch.hold(x.dims(), dtype);
        scratch.hold(x.dims(), DType::Int64);
    }
    scratch.sort_rows(x.numel(), length, dtype);
    Some(scratch)
}

/// `topk` along a dimension of a tensor: a copy of what is not row-major; long rows are counted by several blocks, in their radix' digits
/// (`mbtopk::launch` in `aten/src/ATen/native/cuda/TensorTopK.cu`); more than 4096 that come out are then sorted (`TensorTopK.cpp`).
pub fn topk<'c>(
    cx: &'c Rc<Context>,
    op: Op,
    x: &Geometry,
    (dim, kept): (usize, u64),
    sorted: bool,
    dtype: DType,
) -> Option<Scratch<'c>> {
    let &length = x.dims().get(dim)?;
    let rows = x.numel().checked_div(length)?;
    let mut scratch = Scratch::of(cx, op)?;
    let copied = usize::from(!x.is_contiguous());
    if copied == 1 {
        scratch.hold(x.dims(), dtype);
    }
    if is_shared(rows, length) {
        let blocks =
            rows.saturating_mul(length.div_ceil(numbers_of_a_block(cx.machine().multiprocessors, rows, length)));
        // Short and half numbers have the digits of 32 bits (`TopKTypeConfig`).
        let digits = if dtype.size() > 4 { DType::Int64 } else { DType::Int32 };
        scratch.hold(&[rows], dtype);
        scratch.hold(&[2, rows], DType::Int32);
        scratch.hold(&[2, rows], digits);
        // Counters of 16 bits.
        scratch.hold(&[blocks, DIGITS], DType::Float16);
        scratch.hold(&[rows, DIGITS], DType::Int32);
        scratch.hold(&[blocks], DType::Int32);
        scratch.hold(&[blocks], DType::Int32);
        scratch.release(7 + copied);
    }
    let kept = kept.min(length);
    if sorted && kept > IN_PLACE {
        scratch.hold(&[rows, kept], DType::Int64);
        scratch.hold(&[rows, kept], dtype);
        scratch.sort_rows(rows.saturating_mul(kept), kept, dtype);
    }
    Some(scratch)
}

/// `RADIX_DIGITS` and `BLOCK_THREADS` in `TensorTopK.cu`.
const DIGITS: u64 = 256;
const THREADS: u64 = 256;

/// Whether several blocks take a row (`should_use_multiblock`).
fn is_shared(rows: u64, length: u64) -> bool {
    let least = match rows {
        0..=20 => 20_000,
        21..=40 => 10_000,
        41..=80 => 8_000,
        81..=199 => 5_000,
        200..=799 => 3_000,
        800..=4000 => 800,
        _ => 400,
    };
    length >= least
}

/// `get_items_per_thread`, times the threads of a block: 65536 registers of a multiprocessor hold 6 blocks of 40 x 256.
fn numbers_of_a_block(multiprocessors: u64, rows: u64, length: u64) -> u64 {
    const BLOCKS: u64 = 6;
    let threads = multiprocessors.saturating_mul(BLOCKS * THREADS).max(1);
    THREADS * rows.saturating_mul(length).div_ceil(threads).clamp(4, 64)
}
