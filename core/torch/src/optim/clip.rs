//! `torch.nn.utils.clip_grad_norm_` (`torch/nn/utils/clip_grad.py`), foreach.

use std::rc::Rc;

use super::groups::by_dtype;
use super::lists::{Lists, Pass};
use crate::Op;
use crate::ops::inside;
use crate::tensor::{Context, DType, Tensor};

const NORM: Op = Op::ForeachNormScalar;

/// A norm a gradient, their norm, the clip coefficient; the gradients are scaled in place.
///
/// Of shards each rank takes the norms of its own, and the norm of all is their sum over the ranks (`DTensor` with a
/// placement of `_NormPartial`).
pub fn clip_grad_norm(cx: &Rc<Context>, parameters: &[Tensor], sharded: bool) {
    let mut dtype = None;
    let gradients = by_dtype(parameters);
    let mut norms = Vec::with_capacity(gradients.len());
    for group in gradients.chunk_by(|a, b| a.dtype() == b.dtype()) {
        let largest = group.iter().map(|gradient| gradient.numel()).max().unwrap_or(0);
        let scratch = inside::foreach_norm(cx, NORM, group.len() as u64, largest);
        let mut launch = cx.launch(NORM, group);
        norms.extend(group.iter().map(|grad| {
            dtype = Some(dtype.map_or(grad.dtype(), |d: DType| d.promote(grad.dtype())));
            launch.make_sizes(&[], grad.dtype())
        }));
        drop(launch);
        drop(scratch);
    }
    let lists = Lists::of(parameters);
    let count = gradients.len() as u64;
    let Some(dtype) = dtype else { return };
    let parts: Vec<&Tensor> = norms.iter().collect();
    let stacked = cx.launch(Op::Stack, &parts).make_sizes(&[count], dtype);
    let all = sharded.then(|| {
        let list = |op, operand: &Tensor| cx.launch(op, &[operand]).make_sizes(&[count], dtype);
        let powers = list(Op::PowTensorScalar, &stacked);
        let summed = list(Op::AllReduce, &powers);
        let norms = list(Op::PowTensorScalar, &summed);
        drop(powers);
        drop(summed);
        norms
    });
    let total = cx.launch(Op::LinalgVectorNorm, &[all.as_ref().unwrap_or(&stacked)]).make_sizes(&[], dtype);
    drop(all);
    drop((stacked, norms));
    let number = |op, operand: &Tensor| cx.launch(op, &[operand]).make_sizes(&[], dtype);
    let plus = number(Op::AddTensor, &total);
    let inverse = number(Op::Reciprocal, &plus);
    let coefficient = number(Op::MulTensor, &inverse);
    drop((inverse, plus));
    let clamped = number(Op::Clamp, &coefficient);
    lists.run(cx, &[Pass::new(Op::ForeachMulInPlace, 1, 1)]);
    drop((coefficient, clamped, total));
}
