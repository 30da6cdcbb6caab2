//! DeBERTa's own autograd functions, of transformers before 4.47: `XDropout` and `XSoftmax`
//! (`models/deberta_v2/modeling_deberta_v2.py` of 4.46.3).

use super::cast::to;
use super::plain::{Pointwise, each, pointwise};
use super::{inside, softmax_to};
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

const FILL: Op = Op::MaskedFillScalar;

/// `StableDropout`: a mask made of numbers in x's dtype; what it hides is filled, and all is scaled. Keeps the mask.
pub fn stable_dropout(x: &Tensor, p: f64) -> Tensor {
    if p == 0.0 || x.cx().is_inference() {
        return x.clone();
    }
    let cx = x.cx();
    let tape = Tape::new(cx, GradFn::XDropoutBackward, &[x]);
    // (1 - torch.empty_like(input).bernoulli_(1 - dropout)).to(torch.bool)
    let mask = {
        let complement = {
            let noise = cx.launch(Op::EmptyLike, &[]).make_like(x);
            cx.in_place(Op::BernoulliInPlace, &noise, &[]);
            each(Pointwise::RsubScalar, &noise, x.dtype())
        };
        each(Pointwise::ToCopy, &complement, DType::Bool)
    };
    let saved = tape.save(&mask);
    let mut out = {
        let filled = cx.launch(FILL, &[x, &mask]).make_sizes(x.dims(), x.dtype());
        cx.launch(Op::MulTensor, &[&filled]).make_like(&filled)
    };
    drop(mask);
    tape.record([&mut out], move |g| {
        let mask = saved.unpack();
        let filled = g.make(FILL, &[g.grad(), &mask], Geometry::contiguous(g.grad().dims()), g.grad().dtype());
        grads([Some(g.like(Op::MulTensor, &filled, &[]))])
    });
    out
}

/// `XSoftmax.apply(scores, mask, -1)`: what the mask hides is filled before and after; keeps the result. The mask is
/// `[batch, 1, seq, seq]`, of any dtype.
pub fn masked_softmax(scores: &Tensor, mask: &Tensor) -> Tensor {
    let cx = scores.cx();
    let tape = Tape::new(cx, GradFn::XSoftmaxBackward, &[scores]);
    let hidden = {
        let seen = to(mask, DType::Bool);
        pointwise(Pointwise::BitwiseNot, &seen, &[], mask.dims(), DType::Bool)
    };
    let filled = cx.launch(FILL, &[scores, &hidden]).make_sizes(scores.dims(), scores.dtype());
    let dtype = if cx.autocast_dtype().is_some() { DType::Float32 } else { scores.dtype() };
    // A function's own operators leave no graph behind.
    let mut out = softmax_to(&filled.detach(), dtype);
    drop(filled);
    cx.in_place(Op::MaskedFillInPlace, &out, &[&hidden]);
    let saved = tape.save(&out);
    let from = out.dtype();
    drop(hidden);
    tape.record([&mut out], move |g| {
        let result = saved.unpack();
        let gradient = g.make(Op::SoftmaxBackwardData, &[g.grad(), &result], Geometry::contiguous(result.dims()), from);
        drop(inside::softmax_backward(g.cx(), Op::SoftmaxBackwardData, result.dims(), result.dtype()));
        grads([Some(gradient)])
    });
    out
}
