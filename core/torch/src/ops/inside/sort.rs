//! Sorting indices, which a gradient that adds up rows begins with.

use std::rc::Rc;

use super::Scratch;
use crate::Op;
use crate::tensor::{Context, DType, Geometry};

impl Scratch<'_> {
    /// `cub::DeviceRadixSort::SortPairs` of `n` 8-byte keys with 8-byte values, gone before this returns: a copy of both
    /// beside what it was given (`cub/device/dispatch/dispatch_radix_sort.cuh`, the one-sweep sort of compute capability 7.0
    /// and up; its counters, less than a fiftieth of that, are left out; up to 2304 keys are sorted in place, in less than
    /// the 36 KiB counted here). The values it was given, `at::arange(n)`, go with it.
    pub(super) fn sort_with_range(&mut self, n: u64) {
        self.hold(&[n], DType::Int64);
        self.hold(&[2, n], DType::Int64);
        self.release(2);
    }
}

/// `index_put_(accumulate=True)` of `rows` row numbers, the backward of picking rows: the positions as offsets, sorted
/// positions and their order, kept until it is done; the sort (`index_put_with_sort_kernel` in
/// `aten/src/ATen/native/cuda/Indexing.cu`).
///
/// What is added, `values`, is made row-major before.
pub fn accumulate_rows<'c>(
    cx: &'c Rc<Context>,
    op: Op,
    rows: u64,
    (values, dtype): (&Geometry, DType),
) -> Option<Scratch<'c>> {
    let mut scratch = Scratch::of(cx, op)?;
    if !values.is_contiguous() {
        scratch.hold(values.dims(), dtype);
    }
    for _ in 0..3 {
        scratch.hold(&[rows], DType::Int64);
    }
    scratch.sort_with_range(rows);
    Some(scratch)
}
