//! `torch.nn.utils.clip_grad_norm_` (`torch/nn/utils/clip_grad.py`), foreach.

use std::rc::Rc;

use super::groups::by_dtype;
use crate::Op;
use crate::ops::inside;
use crate::tensor::{Context, DType, Tensor};

const NORM: Op = Op::ForeachNormScalar;

/// A norm a gradient, their norm, the clip coefficient; the gradients are scaled in place.
pub fn clip_grad_norm(cx: &Rc<Context>, parameters: &[Tensor]) {
    let mut dtype = None;
    let gradients = by_dtype(parameters);
    let mut norms = Vec::with_capacity(gradients.len());
    for group in gradients.chunk_by(|a, b| a.dtype() == b.dtype()) {
        let largest = group.iter().map(|gradient| gradient.numel()).max().unwrap_or(0);
        let scratch = inside::foreach_norm(cx, NORM, group.len() as u64, largest);
        norms.extend(group.iter().map(|grad| {
            dtype = Some(dtype.map_or(grad.dtype(), |d: DType| d.promote(grad.dtype())));
            cx.empty_sizes(NORM, &[], grad.dtype())
        }));
        drop(scratch);
    }
    let count = gradients.len() as u64;
    let Some(dtype) = dtype else { return };
    let stacked = cx.empty_sizes(Op::Stack, &[count], dtype);
    let total = cx.empty_sizes(Op::LinalgVectorNorm, &[], dtype);
    drop((stacked, norms));
    let plus = cx.empty_sizes(Op::AddTensor, &[], dtype);
    let inverse = cx.empty_sizes(Op::Reciprocal, &[], dtype);
    let coefficient = cx.empty_sizes(Op::MulTensor, &[], dtype);
    drop((inverse, plus));
    let clamped = cx.empty_sizes(Op::Clamp, &[], dtype);
    drop((coefficient, clamped, total));
}
