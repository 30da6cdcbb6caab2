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

/// The gradients of weight and bias over many short rows: partial sums of every 32 rows, which are summed again
/// (`LaunchGammaBetaBackwardCUDAKernel` in `aten/src/ATen/native/cuda/layer_norm_kernel.cu`).
pub fn layer_norm_parts<'c>(
    cx: &'c Rc<Context>,
    op: Op,
    (rows, columns): (u64, u64),
    gradients: usize,
    dtype: DType,
) -> Option<Scratch<'c>> {
    const MANY: u64 = 64 * 1024;
    const ROWS: u64 = 32;
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
    for _ in 0..gradients {
        drop(reduction::sum(cx, Op::SumDimIntList, &Geometry::contiguous(&parts), |i| i == 0, dtype));
    }
    Some(scratch)
}
