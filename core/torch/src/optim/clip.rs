//! `torch.nn.utils.clip_grad_norm_` (`torch/nn/utils/clip_grad.py`), foreach.

use std::rc::Rc;

use super::groups::by_dtype;
use super::lists::{Lists, Pass};
use crate::Op;
use crate::ops::inside;
use crate::tensor::{Context, DType, Geometry, Tensor};

const NORM: Op = Op::ForeachNormScalar;

/// Of what norms are taken, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Norm {
    /// `torch.nn.utils.clip_grad_norm_` on tensors that are whole.
    #[default]
    Plain,
    /// The same on shards: each rank takes the norms of its own, and the norm of all is their sum over the ranks (`DTensor`
    /// with a placement of `_NormPartial`).
    OfShards,
    /// `FullyShardedDataParallel.clip_grad_norm_`: one gradient after the other, in float32.
    OneByOne,
    /// The same where gradients lie in the machine's own memory: only their norm comes to the card.
    OneByOneElsewhere,
    /// The same where nothing is cut: the plain one, behind a zero that is not needed.
    PlainBehindZero,
}

/// What a call leaves behind.
#[derive(Debug, Default)]
pub struct Clipped {
    /// Handed to the next call.
    pub kept: Option<Tensor>,
    /// The norm of all gradients, of those that are whole.
    pub total: Option<Tensor>,
}

/// A norm a gradient, their norm, the clip coefficient; the gradients are scaled in place. `kept` is of the last call.
pub fn clip_grad_norm(cx: &Rc<Context>, parameters: &[Tensor], norm: Norm, kept: Option<Tensor>) -> Clipped {
    let zero = |kept: Option<Tensor>| kept.unwrap_or_else(|| number(cx, Op::ScalarTensor, &[]));
    let kept = match norm {
        Norm::Plain => return Clipped { total: by_list(cx, parameters, false), kept },
        Norm::OfShards => {
            drop(by_list(cx, parameters, true));
            kept
        }
        Norm::OneByOne => Some(one_by_one(cx, parameters, kept)),
        Norm::PlainBehindZero => {
            let zero = zero(kept);
            drop(by_list(cx, parameters, false));
            Some(zero)
        }
        Norm::OneByOneElsewhere => {
            let zero = zero(kept);
            let local = number(cx, Op::ToCopy, &[]);
            let square = number(cx, Op::PowTensorScalar, &[&local]);
            drop(number(cx, Op::PowTensorScalar, &[&square]));
            Some(zero)
        }
    };
    Clipped { kept, total: None }
}

/// `_get_grad_norm` and `clip_grad_norm_` of FSDP1; the zero it makes stays.
fn one_by_one(cx: &Rc<Context>, parameters: &[Tensor], kept: Option<Tensor>) -> Tensor {
    let zero = kept.unwrap_or_else(|| number(cx, Op::ScalarTensor, &[]));
    let gradients = by_dtype(parameters);
    if gradients.is_empty() {
        return zero;
    }
    let norms: Vec<Tensor> = gradients
        .iter()
        .map(|gradient| {
            let norm = number(cx, Op::LinalgVectorNorm, &[gradient]);
            let flat = Geometry::contiguous(&[gradient.numel()]);
            drop(inside::sum(cx, Op::LinalgVectorNorm, &flat, |_| true, DType::Float32));
            norm
        })
        .collect();
    let parts: Vec<&Tensor> = norms.iter().collect();
    let stacked = cx.launch(Op::Stack, &parts).make_sizes(&[parts.len() as u64], DType::Float32);
    drop(norms);
    let local = number(cx, Op::LinalgVectorNorm, &[&stacked]);
    drop(stacked);
    let square = number(cx, Op::PowTensorScalar, &[&local]);
    let total = number(cx, Op::PowTensorScalar, &[&square]);
    drop(square);
    let plus = number(cx, Op::AddTensor, &[&total]);
    let inverse = number(cx, Op::Reciprocal, &[&plus]);
    let coefficient = number(cx, Op::MulTensor, &[&inverse]);
    drop((inverse, plus));
    let clamped = number(cx, Op::Clamp, &[&coefficient]);
    for gradient in gradients {
        let cast = (gradient.dtype() != DType::Float32)
            .then(|| cx.launch(Op::ToCopy, &[&clamped]).make_sizes(&[], gradient.dtype()));
        cx.in_place(Op::MulInPlace, gradient, &[cast.as_ref().unwrap_or(&clamped)]);
        drop(cast);
    }
    drop((clamped, coefficient, total, local));
    zero
}

fn number(cx: &Rc<Context>, op: Op, operands: &[&Tensor]) -> Tensor {
    cx.launch(op, operands).make_sizes(&[], DType::Float32)
}

/// Answers the norm of all.
fn by_list(cx: &Rc<Context>, parameters: &[Tensor], sharded: bool) -> Option<Tensor> {
    let mut dtype = None;
    let gradients = by_dtype(parameters);
    let mut norms = Vec::with_capacity(gradients.len());
    let one = Geometry::contiguous(&[]);
    for group in gradients.chunk_by(|a, b| a.dtype() == b.dtype()) {
        let largest = group.iter().map(|gradient| gradient.numel()).max().unwrap_or(0);
        let scratch = inside::foreach_norm(cx, NORM, group.len() as u64, largest);
        let mut launch = cx.launch(NORM, group);
        norms.extend(group.iter().map(|grad| {
            dtype = Some(dtype.map_or(grad.dtype(), |d: DType| d.promote(grad.dtype())));
            launch.make(one.clone(), grad.dtype())
        }));
        drop(launch);
        drop(scratch);
    }
    let lists = Lists::of(parameters);
    let count = gradients.len() as u64;
    let dtype = dtype?;
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
    drop((coefficient, clamped));
    Some(total)
}
