//! The norms of many tensors at once.

use std::rc::Rc;

use plimsoll_catalog::software::rules;

use super::Scratch;
use crate::Op;
use crate::tensor::{Context, DType};

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
