//! What compares two sets of vectors: quotients, sums of squares, a learned temperature.

use super::cast::full_precision;
use super::elementwise::{binary, unary};
use super::inside;
use crate::tensor::{Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `a / b`; keeps b, and a if b wants a gradient.
pub fn div(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), GradFn::DivBackward0, &[a, b]);
    let saved_b = tape.save(b);
    let saved_a = tape.save_if(tape.needs(1), a);
    let mut out = binary(Op::DivTensor, a, b);
    tape.record([&mut out], move |g| {
        let b = saved_b.unpack();
        let a = saved_a.get();
        // div_tensor_other_grad: -grad * ((self / other) / other)
        let other = a.map(|a| {
            let quotient = binary(Op::DivTensor, &a, &b);
            let twice = binary(Op::DivTensor, &quotient, &b);
            let negative = g.like(Op::Neg, g.grad(), &[]);
            binary(Op::MulTensor, &negative, &twice)
        });
        let this = g.needs(0).then(|| binary(Op::DivTensor, g.grad(), &b));
        grads([this, other])
    });
    out
}

/// `exp(x)`; float32 under autocast. Keeps its result.
pub fn exp(x: &Tensor) -> Tensor {
    let x = full_precision(x);
    let tape = Tape::new(x.cx(), GradFn::ExpBackward0, &[&x]);
    let mut out = unary(Op::Exp, &x);
    let saved = tape.save(&out);
    tape.record([&mut out], move |g| {
        let result = saved.unpack();
        grads([Some(binary(Op::MulTensor, g.grad(), &result))])
    });
    out
}

/// `torch.sum(x, dim=-1, keepdim=True)`; float32 under autocast, which asks the kernel for it (`fp32_set_opt_dtype`) and
/// makes no copy of what is summed. Its gradient is a view.
pub fn sum_last(x: &Tensor) -> Tensor {
    let dtype = x.cx().summed(x.dtype());
    let tape = Tape::new(x.cx(), GradFn::SumBackward1, &[x]);
    let mut sizes = x.dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = 1;
    }
    let mut out = x.cx().launch(Op::SumDimIntList, &[x]).make_sizes(&sizes, dtype);
    drop(inside::sum_to(x.cx(), Op::SumDimIntList, x.geometry(), &sizes, x.dtype()));
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| grads([Some(g.grad().view_as(g.grad().geometry().expanded(from.dims())))]));
    out
}

/// `x.sum(dim=-2)`; as [`sum_last`].
pub fn sum_rows(x: &Tensor) -> Tensor {
    let dtype = x.cx().summed(x.dtype());
    let axis = x.geometry().axis(-2);
    let mut sizes = x.dims().to_vec();
    sizes.remove(axis);
    let tape = Tape::new(x.cx(), GradFn::SumBackward1, &[x]);
    let mut out = x.cx().launch(Op::SumDimIntList, &[x]).make_sizes(&sizes, dtype);
    drop(inside::sum(x.cx(), Op::SumDimIntList, x.geometry(), |i| i == axis, x.dtype()));
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        let each = g.grad().geometry().unsqueezed(-2).expanded(from.dims());
        grads([Some(g.grad().view_as(each))])
    });
    out
}

/// `torch.sqrt(x)`: keeps its result.
pub fn sqrt(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::SqrtBackward0, &[x]);
    let mut out = unary(Op::Sqrt, x);
    let saved = tape.save(&out);
    tape.record([&mut out], move |g| {
        // grad / (2 * result)
        let result = saved.unpack();
        let twice = g.like(Op::MulScalar, &result, &[]);
        grads([Some(binary(Op::DivTensor, g.grad(), &twice))])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{div, exp, sum_last};
    use crate::ops::neg;
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward, made};

    /// `div_tensor_other_grad` makes four tensors, `div_tensor_self_grad` one.
    #[test]
    fn a_quotient_keeps_both_operands() {
        let cx = forward();
        let (a, b) = (neg(&activation(&cx, &[4, 8])), neg(&activation(&cx, &[4, 1])));
        let out = div(&a, &b);
        drop((a, b));
        assert_eq!(alive(&cx, Kind::Saved), ["neg [4, 8] float32", "neg [4, 1] float32"]);
        let events = backward_of(out);
        let births = made(&events);
        assert_eq!(births[1..7], ["div.Tensor", "div.Tensor", "neg", "mul.Tensor", "div.Tensor", "sum.dim_IntList"]);
    }

    #[test]
    fn exp_keeps_its_result_and_a_sum_nothing() {
        let cx = forward();
        let out = sum_last(&exp(&neg(&activation(&cx, &[4, 8]))));
        assert_eq!(out.dims(), [4, 1]);
        assert_eq!(alive(&cx, Kind::Saved), ["exp [4, 8] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "mul.Tensor", "neg"]);
    }
}
