//! Sorting indices, which a gradient that adds up rows begins with.

use std::rc::Rc;

use super::Scratch;
use super::cub::Keys;
use crate::Op;
use crate::tensor::{Context, DType, Geometry};

/// Up to this many numbers a row is sorted in place (`should_use_small_sort` in `aten/src/ATen/native/cuda/SortStable.h`).
const IN_PLACE: u64 = 4096;

impl Scratch<'_> {
    /// `n` numbers of 64 bits are sorted, and with them their places, `at::arange(n)`, gone before this returns.
    pub(super) fn sort_with_range(&mut self, n: u64, keys: Keys) {
        self.hold(&[n], DType::Int64);
        self.cub_sort(n, keys, DType::Int64.size());
        self.release(1);
    }

    /// Rows that lie together, each longer than one that is sorted in place: gone before this returns.
    fn sort_rows(&mut self, numbers: u64, length: u64, dtype: DType) {
        /// `rough heuristics where even a single sort occupies GPU`
        const ALONE: u64 = 1_000_000;
        let before = self.held.len();
        let rows = numbers.checked_div(length).unwrap_or(0);
        let (keys, place) = (Keys::Numbers(dtype), DType::Int64.size());
        if rows == 1 || length >= ALONE {
            self.hold(&[length], DType::Int64);
            self.cub_sort(length, keys, place);
        } else if rows < 128 {
            // Places and rows as two times 32 bits, all sorted by number and then by row; the sorted numbers are nobody's.
            self.hold(&[numbers], DType::Int64);
            self.hold(&[numbers], DType::Int64);
            self.hold(&[numbers], dtype);
            self.cub_sort(numbers, keys, place);
            self.release(1);
            self.cub_sort(numbers, Keys::Rows(rows), 0);
        } else {
            self.hold(&[numbers], DType::Int64);
            self.cub_sort_rows(numbers, keys, place);
        }
        self.release(self.held.len() - before);
    }
}

/// What rows are added to.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// How many.
    pub count: u64,
    /// How many dimensions their numbers are of.
    pub dimensions: usize,
    /// What selects them, where a mask does (`expandTensors` in `IndexingUtils.h`).
    pub mask: Option<(&'a Geometry, DType)>,
}

impl Rows<'_> {
    /// So many, by numbers of so many dimensions.
    pub const fn numbered(count: u64, dimensions: usize) -> Self {
        Self { count, dimensions, mask: None }
    }
}

/// `index_put_(accumulate=True)` of `rows` row numbers into `whole`, the backward of picking rows: the positions, as they are behind
/// zero, are made offsets, those in further `dimensions` added to them; what is added, `values`, is made row-major; sorted positions and their order, kept until it is done; the
/// sort, by as many bits as the largest row number has (`computeLinearIndex` and `index_put_with_sort_kernel` in
/// `aten/src/ATen/native/cuda/Indexing.cu`). A table that `grows` has a row for every so many of them, whatever the batch.
pub fn accumulate_rows<'c>(
    cx: &'c Rc<Context>,
    op: Op,
    Rows { count: rows, dimensions, mask }: Rows<'_>,
    (whole, grows): (&Geometry, bool),
    (values, dtype): (&Geometry, DType),
) -> Option<Scratch<'c>> {
    // What is picked lies in slices of this many numbers.
    let slice = values.numel().checked_div(rows).unwrap_or(0);
    let below = whole.numel().checked_div(slice).unwrap_or(0);
    let keys = match rows.checked_div(below) {
        Some(repeats) if grows && rows == repeats * below => Keys::Repeated(repeats),
        _ => Keys::Rows(below),
    };
    let mut scratch = Scratch::of(cx, op)?;
    let places = mask.and_then(|(mask, dtype)| Scratch::places(cx, mask, dtype, rows));
    scratch.hold(&[rows], DType::Int64);
    scratch.hold(&[rows], DType::Int64);
    scratch.held.remove(0);
    for _ in 1..dimensions {
        scratch.hold(&[rows], DType::Int64);
        scratch.hold(&[rows], DType::Int64);
        scratch.release(2);
    }
    drop(places);
    if !values.is_contiguous() {
        scratch.hold(values.dims(), dtype);
    }
    for _ in 0..2 {
        scratch.hold(&[rows], DType::Int64);
    }
    scratch.sort_with_range(rows, keys);
    Some(scratch)
}

/// `randperm` of `n` numbers, and its result is there: the numbers in order, what they are sorted by, twice, and that sort
/// (`randperm_out_cuda` in `aten/src/ATen/native/cuda/Randperm.cu`).
pub fn shuffled<'c>(cx: &'c Rc<Context>, op: Op, (n, dtype): (u64, DType)) -> Option<Scratch<'c>> {
    let mut scratch = Scratch::of(cx, op)?;
    let bits = shuffled_bits(n);
    let key = if bits <= 32 { DType::Int32 } else { DType::Int64 };
    scratch.hold(&[n], dtype);
    scratch.hold(&[n], key);
    scratch.hold(&[n], key);
    scratch.cub_sort(n, Keys::Shuffled(key, bits), dtype.size());
    Some(scratch)
}

/// So many bits that twelve of `n` numbers are alike less often than one time in ten (`Note [Algorithm of randperm]`).
fn shuffled_bits(n: u64) -> u64 {
    /// `std::log(0.9) * 12`, which need not come out the same everywhere.
    const THRESHOLD: f64 = -1.264_326_187_893_915_4;
    let n = n as f64;
    let numbers = n - (6.0 * n * n + 1.0) / THRESHOLD;
    (0..64).find(|bits| (1u64 << bits) as f64 >= numbers).unwrap_or(64)
}

/// `sort` along a dimension, and `values` and `indices` are there: its positions, or copies that the sort of many rows takes
/// (`sort_cuda_kernel` in `aten/src/ATen/native/cuda/Sort.cpp`, `do_launch_stable_sort_kernel` in `SortStable.cu`).
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
        // How many each block finds become where they go, of those beyond the last one kept and of those equal to it.
        scratch.cub_sum_by_key(blocks);
        scratch.cub_sum_by_key(blocks);
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
