//! What kernels allocate for themselves: through PyTorch's allocator, but behind the ops, so that no trace of ops shows it.
//!
//! Counted with `device.workspaces = true` only. Everything in here lives while one op runs; what stays from one op to the
//! next, the matrix libraries' workspaces, is in [`plimsoll_catalog::device::cublas_workspace`].
//!
//! Sizes grow evenly with the batch, as all others do; where a kernel's do not, it says what law they follow instead.

mod attention;
mod convolution;
mod cub;
mod embedding;
mod grouped;
mod norm;
mod question;
mod reduction;
mod softmax;
mod sort;

#[cfg(test)]
mod convolution_tests;
#[cfg(test)]
mod cub_tests;
#[cfg(test)]
mod tests;

pub use attention::{Sizes, attention_backward, attention_forward, cudnn_forward, shared_keys};
pub use convolution::{Convolved, Product, convolution};
pub use embedding::{after_sorting, sorted_indices};
pub use grouped::grouped_mm;
pub use norm::{GroupNormBackward, foreach_norm, group_norm, group_norm_backward, layer_norm_parts, layer_norm_sum};
pub use question::{Answers, Question, Shape};
pub use reduction::{part, reduced, reduced_to, sum, sum_to};
pub use softmax::softmax_backward;
pub use sort::{Rows, accumulate_rows, shuffled, sort, topk};

use std::rc::Rc;

use smallvec::SmallVec;

use super::told::Given;
use crate::Op;
use crate::tensor::{Context, DType, Geometry, Kernels, Kind, Tensor};

/// Buffers of one kernel; it lets go of them when this is dropped, the last one first.
#[derive(Debug)]
pub struct Scratch<'c> {
    cx: &'c Rc<Context>,
    op: Op,
    held: SmallVec<[Tensor; 6]>,
}

impl<'c> Scratch<'c> {
    /// Buffers in the name of `op`; `None` where they are not counted.
    pub fn of(cx: &'c Rc<Context>, op: Op) -> Option<Self> {
        let counted = cx.machine().kernels != Kernels::Uncounted && !cx.is_muted();
        counted.then(|| Self { cx, op, held: SmallVec::new() })
    }

    /// A copy in another dtype of what an op is given, which only takes its own: `cumsum` of booleans or int32 makes one in
    /// int64 (`cumsum_out` in `aten/src/ATen/native/ReduceOps.cpp`).
    pub fn converted(cx: &'c Rc<Context>, op: Op, sizes: &[u64], dtype: DType) -> Option<Self> {
        let mut scratch = Self::of(cx, op)?;
        scratch.hold(sizes, dtype);
        Some(scratch)
    }

    /// A row-major copy of what a kernel is given, where it is not row-major (`expect_contiguous`, `contiguous`).
    pub fn contiguous(cx: &'c Rc<Context>, op: Op, given: &Geometry, dtype: DType) -> Option<Self> {
        if given.is_contiguous() { None } else { Self::converted(cx, op, given.dims(), dtype) }
    }

    /// A running sum along a dimension of `numbers` in all, `size` bytes each. Of one row alone CUB makes it (`scan_dim` in
    /// `aten/src/ATen/native/cuda/ScanUtils.cuh`).
    pub fn running_sum(cx: &'c Rc<Context>, op: Op, (numbers, length): (u64, u64), size: u64) {
        if numbers == length
            && numbers > 0
            && let Some(mut scratch) = Self::of(cx, op)
        {
            scratch.cub_sum(numbers, size, 0);
        }
    }

    /// `masked_scatter_` of what has these sizes: where each element is taken from (`masked_scatter__cuda` in `IndexKernel.cpp`), then row-major
    /// copies of mask and source, the sum between them (`launch_masked_scatter_kernel` in `IndexKernel.cu`).
    pub fn scattered(cx: &'c Rc<Context>, sizes: &[u64], [mask, source]: [&Given; 2]) -> Option<Self> {
        let mut scratch = Self::of(cx, Op::MaskedScatterInPlace)?;
        scratch.hold(sizes, DType::Int64);
        if !mask.geometry.is_contiguous() {
            scratch.hold(mask.geometry.dims(), mask.dtype);
        }
        scratch.cub_sum(mask.geometry.numel(), DType::Int64.size(), 0);
        if !source.geometry.is_contiguous() {
            scratch.hold(source.geometry.dims(), source.dtype);
        }
        Some(scratch)
    }

    /// Before `nonzero` of `x` makes its result (`nonzero_cuda_out_impl` in `aten/src/ATen/native/cuda/Nonzero.cu`): of what is not
    /// row-major a copy; how many there are is counted, and stays on the card until they are picked.
    pub fn counted(cx: &'c Rc<Context>, x: &Geometry, dtype: DType) -> Option<Self> {
        let mut scratch = Self::of(cx, Op::Nonzero)?;
        if !x.is_contiguous() {
            scratch.hold(x.dims(), dtype);
        }
        scratch.hold(&[1], DType::Int32);
        scratch.cub_count(x.numel());
        Some(scratch)
    }

    /// Then those of so many numbers that are not zero are picked.
    pub fn picked(mut self, numbers: u64) {
        self.cub_select(numbers);
    }

    /// `nonzero` of a mask that selects `count`, within another kernel.
    fn places(cx: &'c Rc<Context>, mask: &Geometry, dtype: DType, count: u64) -> Option<Self> {
        let counted = Self::counted(cx, mask, dtype)?;
        let mut places = Self::of(cx, Op::Nonzero)?;
        places.hold(&[mask.rank() as u64, count], DType::Int64);
        counted.picked(mask.numel());
        Some(places)
    }

    /// Makes a buffer, and says its storage.
    fn hold(&mut self, dims: &[u64], dtype: DType) -> u32 {
        let buffer = self.cx.counting_as(Kind::Scratch, || self.cx.empty(self.op, Geometry::contiguous(dims), dtype));
        let id = buffer.storage_id();
        self.held.push(buffer);
        id
    }

    /// The last `n` buffers are done with.
    fn release(&mut self, n: usize) {
        self.held.truncate(self.held.len().saturating_sub(n));
    }
}

impl Drop for Scratch<'_> {
    /// Locals of C++ go last first.
    fn drop(&mut self) {
        while self.held.pop().is_some() {}
    }
}
