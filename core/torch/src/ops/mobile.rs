//! The activations of networks made for phones, dropout in place, and pooling to a given side.

use super::conv::{image, is_channels_last};
use crate::tensor::{Geometry, Saved, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// An op in place whose gradient needs what x was, so that is copied first.
fn keeps_a_copy(op: Op, grad_fn: GradFn, backward: Op, x: Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), grad_fn, &[&x]);
    let original = tape.needs(0).then(|| x.cx().launch(Op::Clone, &[&x]).make_like(&x));
    let saved = original.as_ref().map_or(Saved::Nothing, |o| tape.save(o));
    drop(original);
    x.cx().in_place(op, &x, &[]);
    let mut out = x.detach();
    drop(x);
    tape.record([&mut out], move |g| {
        let x = saved.unpack();
        let geometry = Geometry::elementwise(&[g.grad().geometry(), x.geometry()]);
        grads([Some(g.make(backward, &[g.grad(), &x], geometry, x.dtype()))])
    });
    out
}

/// `hardtanh_(x, 0, 6)`, which is what `nn.ReLU6(inplace=True)` calls (`hardtanh_backward(grad, self, ...)`).
pub fn relu6_in_place(x: Tensor) -> Tensor {
    keeps_a_copy(Op::HardtanhInPlace, GradFn::HardtanhBackward0, Op::HardtanhBackward, x)
}

/// `hardswish_(x)`.
pub fn hardswish_in_place(x: Tensor) -> Tensor {
    keeps_a_copy(Op::HardswishInPlace, GradFn::HardswishBackward0, Op::HardswishBackward, x)
}

/// `silu_(x)`.
pub fn silu_in_place(x: Tensor) -> Tensor {
    keeps_a_copy(Op::SiluInPlace, GradFn::SiluBackward0, Op::SiluBackward, x)
}

/// `hardsigmoid(x)`: keeps its input.
pub fn hardsigmoid(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::HardsigmoidBackward0, &[x]);
    let saved = tape.save(x);
    let mut out = super::elementwise::unary(Op::Hardsigmoid, x);
    tape.record([&mut out], move |g| {
        let x = saved.unpack();
        let geometry = Geometry::elementwise(&[g.grad().geometry(), x.geometry()]);
        grads([Some(g.make(Op::HardsigmoidBackward, &[g.grad(), &x], geometry, x.dtype()))])
    });
    out
}

/// `dropout_(x, p)` in training: noise as large as x, which x is multiplied by and which is kept (`_dropout_impl` in
/// `aten/src/ATen/native/Dropout.cpp`).
pub fn dropout_in_place(x: Tensor, p: f64) -> Tensor {
    if p == 0.0 || x.cx().is_inference() {
        return x;
    }
    let noise = x.cx().launch(Op::EmptyLike, &[]).make_like(&x);
    x.cx().in_place(Op::BernoulliInPlace, &noise, &[]);
    x.cx().in_place(Op::DivInPlace, &noise, &[]);
    let tape = Tape::new(x.cx(), GradFn::MulBackward0, &[&x]);
    let saved = tape.save(&noise);
    x.cx().in_place(Op::MulInPlace, &x, &[&noise]);
    drop(noise);
    let mut out = x.detach();
    drop(x);
    tape.record([&mut out], move |g| {
        let noise = saved.unpack();
        grads([Some(g.like(Op::MulTensor, g.grad(), &[&noise]))])
    });
    out
}

/// `adaptive_avg_pool2d(x, (side, side))` with a side above 1: keeps its input.
pub fn adaptive_avg_pool2d(x: &Tensor, side: u64) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::AdaptiveAvgPool2DBackward0, &[x]);
    let saved = tape.save(x);
    let sizes = [x.size(0), x.size(1), side, side];
    let last = is_channels_last(x.geometry());
    let mut out = x.cx().launch(Op::AdaptiveAvgPool2d, &[x]).make(image(sizes, last), x.dtype());
    tape.record([&mut out], move |g| {
        let x = saved.unpack();
        grads([Some(g.cx().launch(Op::AdaptiveAvgPool2dBackward, &[g.grad(), &x]).make_like(&x))])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{adaptive_avg_pool2d, dropout_in_place, hardsigmoid, hardswish_in_place, relu6_in_place};
    use crate::ops::neg;
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward, made, watch};

    /// `hardswish_backward(grad, self)` and `hardtanh_backward(grad, self, ...)` of what is no more.
    #[test]
    fn in_place_they_keep_a_copy_of_what_was() {
        let cx = forward();
        for (op, backward) in
            [(hardswish_in_place as fn(_) -> _, "hardswish_backward"), (relu6_in_place, "hardtanh_backward")]
        {
            let x = neg(&activation(&cx, &[8]));
            let (events, out) = watch(&cx, || op(x));
            assert_eq!(events, ["+clone [8] float32"]);
            assert_eq!(made(&backward_of(out)), ["ones_like", backward, "neg"]);
        }
    }

    #[test]
    fn hardsigmoid_and_pooling_keep_their_input() {
        let cx = forward();
        let out = hardsigmoid(&neg(&activation(&cx, &[8])));
        assert_eq!(alive(&cx, Kind::Saved), ["neg [8] float32"]);
        drop(out);
        let out = adaptive_avg_pool2d(&neg(&activation(&cx, &[2, 3, 8, 8])), 7);
        assert_eq!(out.dims(), [2, 3, 7, 7]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "_adaptive_avg_pool2d_backward", "neg"]);
    }

    #[test]
    fn dropout_in_place_keeps_noise_as_large_as_itself() {
        let cx = forward();
        let x = neg(&activation(&cx, &[8]));
        let (events, out) = watch(&cx, || dropout_in_place(x, 0.2));
        assert_eq!(events, ["+empty_like [8] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "mul.Tensor", "neg"]);
    }
}
