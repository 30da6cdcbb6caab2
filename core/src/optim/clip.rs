//! `torch.nn.utils.clip_grad_norm_` (`torch/nn/utils/clip_grad.py`), foreach.

use std::rc::Rc;

use super::groups::by_dtype;
use super::with_gradients;
use crate::ops::inside;
use crate::tensor::{Context, DType, Tensor};

const NORM: &str = "_foreach_norm.Scalar";

/// A norm a gradient, their norm, the clip coefficient; the gradients are scaled in place.
pub fn clip_grad_norm(cx: &Rc<Context>, parameters: &[Tensor]) {
    let (mut count, mut largest) = (0, 0);
    for (_, _, grad) in with_gradients(parameters) {
        count += 1;
        largest = grad.numel().max(largest);
    }
    let scratch = inside::foreach_norm(cx, NORM, count, largest);
    let mut dtype = None;
    let norms: Vec<Tensor> = by_dtype(parameters)
        .into_iter()
        .map(|(_, _, grad)| {
            dtype = Some(dtype.map_or(grad.dtype(), |d: DType| d.promote(grad.dtype())));
            cx.empty_sizes(NORM, &[], grad.dtype())
        })
        .collect();
    drop(scratch);
    let Some(dtype) = dtype else { return };
    let stacked = cx.empty_sizes("stack", &[count], dtype);
    let total = cx.empty_sizes("linalg_vector_norm", &[], dtype);
    drop((stacked, norms));
    let plus = cx.empty_sizes("add.Tensor", &[], dtype);
    let inverse = cx.empty_sizes("reciprocal", &[], dtype);
    let coefficient = cx.empty_sizes("mul.Tensor", &[], dtype);
    drop((inverse, plus));
    let clamped = cx.empty_sizes("clamp", &[], dtype);
    drop((coefficient, clamped, total));
}
