//! Norms of many tensors at once, and the gradients of a layer norm's weight and bias.

use std::rc::Rc;

use plimsoll_catalog::software::rules;

use super::{Scratch, reduction};
use crate::Op;
use crate::tensor::{Context, DType, Geometry, Kernels};

/// Elements of one chunk (`kChunkSize` in `aten/src/ATen/native/cuda/MultiTensorApply.cuh`).
const CHUNK: u64 = 65536;

/// `_foreach_norm`: one partial result a chunk, as many for every tensor as the largest one has, in float32
/// (`foreach_tensor_norm_cuda` in `aten/src/ATen/native/cuda/ForeachReduceOp.cu`).
pub fn foreach_norm<'c>(cx: &'c Rc<Context>, op: Op, tensors: u64, largest: u64) -> Option<Scratch<'c>> {
    if !cx.machine().rules.has(&rules::FOREACH_CLIP) {
        return None;
    }
    let mut scratch = Scratch::of(cx, op)?;
    scratch.hold(&[tensors.saturating_mul(largest.div_ceil(CHUNK))], DType::Float32);
    Some(scratch)
}

/// The gradients of weight and bias over many short rows: partial sums of every 32 rows, which are summed again ([`layer_norm_sum`])
/// (`LaunchGammaBetaBackwardCUDAKernel` in `aten/src/ATen/native/cuda/layer_norm_kernel.cu`).
pub fn layer_norm_parts<'c>(
    cx: &'c Rc<Context>,
    op: Op,
    (rows, columns): (u64, u64),
    gradients: usize,
    dtype: DType,
) -> Option<Scratch<'c>> {
    const MANY: u64 = 64 * 1024;
    const WARP: u64 = 32;
    let machine = cx.machine();
    let Kernels::Cuda(..) = machine.kernels else { return None };
    if rows <= MANY || columns / WARP >= machine.multiprocessors / 2 {
        return None;
    }
    let parts = [rows.div_ceil(ROWS), columns];
    let mut scratch = Scratch::of(cx, op)?;
    for _ in 0..gradients {
        scratch.hold(&parts, dtype);
    }
    Some(scratch)
}

/// What the sum of such partial sums takes, of each of the gradients.
pub fn layer_norm_sum<'c>(cx: &'c Rc<Context>, (rows, columns): (u64, u64), dtype: DType) -> Option<Scratch<'c>> {
    let parts = Geometry::contiguous(&[rows.div_ceil(ROWS), columns]);
    reduction::sum(cx, Op::SumDimIntList, &parts, |i| i == 0, dtype)
}

/// Rows of each partial sum.
const ROWS: u64 = 32;

/// The statistics that a group norm's sums are of: float32, of float64 as it is (`kAccType` in
/// `aten/src/ATen/native/cuda/group_norm_kernel.cu`).
fn statistics(dtype: DType) -> DType {
    if dtype == DType::Float64 { DType::Float64 } else { DType::Float32 }
}

/// `native_group_norm` of `[batch, channels, ...]`: a factor and a summand for each channel of each sample, where there is a weight or a
/// bias and more than a number in each (`GroupNormKernelImplInternal` in `group_norm_kernel.cu`; what is kept beside the means in half
/// precision came after 2.11).
pub fn group_norm<'c>(cx: &'c Rc<Context>, op: Op, x: &Geometry, affine: bool, dtype: DType) -> Option<Scratch<'c>> {
    let [batch, channels, ..] = *x.dims() else { return None };
    if !affine || x.numel() == batch.saturating_mul(channels) {
        return None;
    }
    let mut scratch = Scratch::of(cx, op)?;
    for _ in 0..2 {
        scratch.hold(&[batch, channels], statistics(dtype));
    }
    Some(scratch)
}

/// What a group norm's backward is asked for.
#[derive(Clone, Copy, Debug)]
pub struct GroupNormBackward {
    /// How many groups the channels are in.
    pub groups: u64,
    /// Whether the input has a gradient.
    pub input: bool,
    /// Whether there is a weight.
    pub weight: bool,
}

/// `native_group_norm_backward`: two sums for each channel of each sample, and for the input's gradient two numbers a group and, with a
/// weight, a factor for each channel (`GroupNormBackwardKernelImplInternal`), which is not made where each has one number
/// (`GroupNorm1dBackward`; that a simulated H100 is asked for the sums there too is 2.11's).
pub fn group_norm_backward<'c>(
    cx: &'c Rc<Context>,
    op: Op,
    x: &Geometry,
    asked: GroupNormBackward,
    dtype: DType,
) -> Option<Scratch<'c>> {
    let [batch, channels, ..] = *x.dims() else { return None };
    let mut scratch = Scratch::of(cx, op)?;
    let one = x.numel() == batch.saturating_mul(channels);
    scratch.hold(&[batch, channels], statistics(dtype));
    scratch.hold(&[batch, channels], statistics(dtype));
    if asked.input {
        let groups = asked.groups.min(channels);
        scratch.hold(&[batch, groups], statistics(dtype));
        scratch.hold(&[batch, groups], statistics(dtype));
        if asked.weight && !one {
            scratch.hold(&[batch, channels], statistics(dtype));
        }
    }
    Some(scratch)
}
