//! `torch.nn.utils.clip_grad_norm_` (`torch/nn/utils/clip_grad.py`), foreach.

use std::rc::Rc;

use super::with_gradients;
use crate::tensor::{Context, DType, Tensor};

/// A norm a gradient, their norm, the clip coefficient; the gradients are scaled in place.
pub fn clip_grad_norm(cx: &Rc<Context>, parameters: &[Tensor]) {
    let mut count = 0;
    let mut dtype = None;
    let norms: Vec<Tensor> = with_gradients(parameters)
        .map(|(_, _, grad)| {
            count += 1;
            dtype = Some(dtype.map_or(grad.dtype(), |d: DType| d.promote(grad.dtype())));
            cx.empty_sizes("_foreach_norm.Scalar", &[], grad.dtype())
        })
        .collect();
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
