//! Ops that write over their first operand: nothing is allocated, the name simply means the result from now on.

use crate::tensor::{Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `sum += x`, without a gradient.
pub fn accumulate(sum: &Tensor, x: &Tensor) {
    sum.cx().in_place(Op::AddInPlace, sum, &[x]);
}

/// `x.copy_(other)`, without a gradient.
pub fn copy_over(x: &Tensor, other: &Tensor) {
    x.cx().in_place(Op::CopyInPlace, x, &[other]);
}

/// `relu_(x)`: keeps its result, which is the very storage of x.
pub fn relu_in_place(x: Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::ReluBackward0, &[&x]);
    x.cx().in_place(Op::ReluInPlace, &x, &[]);
    let mut out = x.detach();
    drop(x);
    let saved = tape.save(&out);
    tape.record([&mut out], move |g| {
        let result = saved.unpack();
        let geometry = Geometry::elementwise(&[g.grad().geometry(), result.geometry()]);
        grads([Some(g.make(Op::ThresholdBackward, &[g.grad(), &result], geometry, result.dtype()))])
    });
    out
}

/// `x *= number` or `x /= number`; the gradient is scaled into a tensor of its own.
pub fn scale_in_place(x: Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::MulBackward0, &[&x]);
    x.cx().in_place(Op::MulInPlace, &x, &[]);
    let mut out = x.detach();
    drop(x);
    tape.record([&mut out], move |g| grads([Some(g.like(Op::MulTensor, g.grad(), &[]))]));
    out
}

/// `x *= y`, of a `y` that has no gradient: it is kept, and what it scales is not.
pub fn mul_in_place(x: Tensor, y: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::MulBackward0, &[&x]);
    x.cx().in_place(Op::MulInPlace, &x, &[y]);
    let mut out = x.detach();
    drop(x);
    let saved = tape.save(y);
    tape.record([&mut out], move |g| {
        let factor = saved.unpack();
        grads([Some(g.like(Op::MulTensor, g.grad(), &[&factor]))])
    });
    out
}

/// `x += y`.
pub fn add_in_place(x: Tensor, y: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::AddBackward0, &[&x, y]);
    x.cx().in_place(Op::AddInPlace, &x, &[y]);
    let mut out = x.detach();
    drop(x);
    tape.record([&mut out], |g| {
        let grad = g.grad();
        grads([g.needs(0).then(|| grad.clone()), g.needs(1).then(|| grad.clone())])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{add_in_place, mul_in_place, relu_in_place, scale_in_place};
    use crate::ops::neg;
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward, made, watch};

    #[test]
    fn relu_in_place_keeps_what_it_wrote_over() {
        let cx = forward();
        let x = neg(&activation(&cx, &[8]));
        let (events, out) = watch(&cx, || relu_in_place(x));
        assert!(events.is_empty());
        assert_eq!(alive(&cx, Kind::Saved), ["neg [8] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "threshold_backward", "neg"]);
    }

    #[test]
    fn multiplying_in_place_keeps_the_factor_alone() {
        let cx = forward();
        let x = neg(&activation(&cx, &[8]));
        let factor = crate::ops::empty(&cx, &[1], crate::tensor::DType::Float32);
        let (events, out) = watch(&cx, || mul_in_place(x, &factor));
        assert!(events.is_empty());
        assert_eq!(alive(&cx, Kind::Saved), ["empty.memory_format [1] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "mul.Tensor", "neg"]);
    }

    #[test]
    fn scaling_in_place_keeps_nothing_and_scales_the_gradient_apart() {
        let cx = forward();
        let x = neg(&activation(&cx, &[8]));
        let (events, out) = watch(&cx, || scale_in_place(x));
        assert!(events.is_empty());
        assert!(alive(&cx, Kind::Saved).is_empty());
        assert_eq!(made(&backward_of(out)), ["ones_like", "mul.Tensor", "neg"]);
    }

    #[test]
    fn a_sum_in_place_hands_its_gradient_to_both() {
        let cx = forward();
        let (x, y) = (neg(&activation(&cx, &[8])), neg(&activation(&cx, &[8])));
        let (events, out) = watch(&cx, || add_in_place(x, &y));
        assert!(events.is_empty());
        drop(y);
        assert_eq!(made(&backward_of(out)), ["ones_like", "neg", "neg"]);
    }
}
