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

#[cfg(test)]
mod tests {
    use super::{masked_softmax, stable_dropout};
    use crate::ops::neg;
    use crate::tensor::testing::{activation, alive, backward_of, forward, input_of, made, watch};
    use crate::tensor::{DType, Kind};

    /// `XDropout`: numbers, their complement and a mask of it, of which the mask alone is kept.
    #[test]
    fn a_mask_is_made_of_numbers_and_kept() {
        let cx = forward();
        let (events, out) = watch(&cx, || stable_dropout(&neg(&activation(&cx, &[3, 8])), 0.1));
        let ran = ["rand", "neg", "empty_like", "rsub.Scalar", "_to_copy", "masked_fill.Scalar", "mul.Tensor"];
        assert_eq!(made(&events), ran);
        assert_eq!(alive(&cx, Kind::Saved), ["_to_copy [3, 8] bool"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "masked_fill.Scalar", "mul.Tensor", "neg"]);
    }

    /// `XSoftmax`: the result alone is kept, and what it was filled in before is gone.
    #[test]
    fn a_softmax_keeps_its_result() {
        let cx = forward();
        let mask = input_of(&cx, &[2, 1, 4, 4], DType::Float32);
        let (events, out) = watch(&cx, || masked_softmax(&neg(&activation(&cx, &[2, 3, 4, 4])), &mask));
        assert_eq!(made(&events), ["rand", "neg", "_to_copy", "bitwise_not", "masked_fill.Scalar", "_softmax"]);
        assert_eq!(alive(&cx, Kind::Saved), ["_softmax [2, 3, 4, 4] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "_softmax_backward_data", "neg"]);
    }
}
