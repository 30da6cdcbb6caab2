//! Activations and dropout.

use super::cast::full_precision;
use super::conv::suggested;
use super::elementwise::unary;
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// An op that keeps its input, with one kernel for its backward.
fn keeps_input(op: Op, grad_fn: GradFn, backward: Op, x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), grad_fn, &[x]);
    let saved = tape.save(x);
    let mut out = unary(op, x);
    tape.record([&mut out], move |g| {
        let x = saved.unpack();
        let geometry = Geometry::elementwise(&[g.grad().geometry(), x.geometry()]);
        grads([Some(g.make(backward, &[g.grad(), &x], geometry, x.dtype()))])
    });
    out
}

/// An op that keeps its result, with one kernel for its backward.
fn keeps_result(op: Op, grad_fn: GradFn, backward: Op, x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), grad_fn, &[x]);
    let mut out = unary(op, x);
    let saved = tape.save(&out);
    tape.record([&mut out], move |g| {
        let result = saved.unpack();
        let geometry = Geometry::elementwise(&[g.grad().geometry(), result.geometry()]);
        grads([Some(g.make(backward, &[g.grad(), &result], geometry, result.dtype()))])
    });
    out
}

/// `silu(x)`.
pub fn silu(x: &Tensor) -> Tensor {
    keeps_input(Op::Silu, GradFn::SiluBackward0, Op::SiluBackward, x)
}

/// `gelu(x)`, exact or tanh.
pub fn gelu(x: &Tensor) -> Tensor {
    keeps_input(Op::Gelu, GradFn::GeluBackward0, Op::GeluBackward, x)
}

/// `relu(x)`, not in place.
pub fn relu(x: &Tensor) -> Tensor {
    keeps_result(Op::Relu, GradFn::ReluBackward0, Op::ThresholdBackward, x)
}

/// `tanh(x)`.
pub fn tanh(x: &Tensor) -> Tensor {
    keeps_result(Op::Tanh, GradFn::TanhBackward0, Op::TanhBackward, x)
}

/// `leaky_relu(x)`.
pub fn leaky_relu(x: &Tensor) -> Tensor {
    keeps_input(Op::LeakyRelu, GradFn::LeakyReluBackward0, Op::LeakyReluBackward, x)
}

/// `elu(x)`, not in place.
pub fn elu(x: &Tensor) -> Tensor {
    keeps_input(Op::Elu, GradFn::EluBackward0, Op::EluBackward, x)
}

/// `F.softplus(x)`: on autocast's float32 list.
pub fn softplus(x: &Tensor) -> Tensor {
    keeps_input(Op::Softplus, GradFn::SoftplusBackward0, Op::SoftplusBackward, &full_precision(x))
}

/// `sigmoid(x)`.
pub fn sigmoid(x: &Tensor) -> Tensor {
    keeps_result(Op::Sigmoid, GradFn::SigmoidBackward0, Op::SigmoidBackward, x)
}

/// `dropout(x, p)` in training: `native_dropout` and its bool mask; nothing at all for p = 0.
pub fn dropout(x: &Tensor, p: f64) -> Tensor {
    if p == 0.0 || x.cx().is_inference() {
        return x.clone();
    }
    let tape = Tape::new(x.cx(), GradFn::NativeDropoutBackward0, &[x]);
    let geometry = x.geometry().preserved();
    let mut launch = x.cx().launch(Op::NativeDropout, &[x]);
    // `dropout_cuda` in `Dropout.cu` makes the mask first, the fake tensors of the reference rows make it last.
    let (mut out, mask) = if x.cx().machine().kernels.is_counted() {
        let mask = launch.make(geometry.clone(), DType::Bool);
        (launch.make(geometry, x.dtype()), mask)
    } else {
        (launch.make(geometry.clone(), x.dtype()), launch.make(geometry, DType::Bool))
    };
    drop(launch);
    let saved = tape.save(&mask);
    drop(mask);
    tape.record([&mut out], move |g| {
        let mask = saved.unpack();
        // empty_like(grad, grad.suggest_memory_format()) in `Dropout.cu`.
        let geometry = suggested(g.grad().geometry());
        grads([Some(g.make(Op::NativeDropoutBackward, &[g.grad(), &mask], geometry, g.grad().dtype()))])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{dropout, elu, gelu, leaky_relu, relu, silu, tanh};
    use crate::tensor::testing::{activation, activation_of, alive, backward_of, forward, input, made, seen, watch};
    use crate::tensor::{DType, Kind, Tensor};

    /// What of `op(x)` the graph keeps: the input, the output, or neither.
    fn keeps(op: impl Fn(&Tensor) -> Tensor) -> Vec<String> {
        let cx = forward();
        // x is a result of its own, so that only the graph can keep it.
        let x = crate::ops::neg(&activation(&cx, &[8]));
        let out = op(&x);
        drop(x);
        let kept = alive(&cx, Kind::Saved);
        drop(out);
        kept
    }

    /// `derivatives.yaml`: `silu_backward(grad, self)`, `gelu_backward(grad, self, approximate)`.
    #[test]
    fn silu_and_gelu_keep_their_input() {
        assert_eq!(keeps(silu), ["neg [8] float32"]);
        assert_eq!(keeps(gelu), ["neg [8] float32"]);
    }

    /// `leaky_relu_backward(grad, self, slope, false)`, `elu_backward(grad, ..., /* is_result */ false, self)`.
    #[test]
    fn leaky_relu_and_elu_keep_their_input() {
        assert_eq!(keeps(leaky_relu), ["neg [8] float32"]);
        assert_eq!(keeps(elu), ["neg [8] float32"]);
    }

    /// `derivatives.yaml`: `threshold_backward(grad, result, 0)`, `tanh_backward(grad, result)`.
    #[test]
    fn relu_and_tanh_keep_their_result() {
        assert_eq!(keeps(relu), ["relu [8] float32"]);
        assert_eq!(keeps(tanh), ["tanh [8] float32"]);
    }

    /// `native_dropout_backward(grad, result1, scale)`: one byte an element, neither input nor output.
    #[test]
    fn dropout_keeps_a_mask_of_bytes() {
        assert_eq!(keeps(|x| dropout(x, 0.1)), ["native_dropout [8] bool"]);
        let cx = forward();
        let out = dropout(&activation_of(&cx, &[8], DType::BFloat16), 0.1);
        assert_eq!(seen(&cx, 1)[..2], ["+native_dropout [8] bfloat16", "+native_dropout [8] bool"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "native_dropout_backward"]);
    }

    /// `at::dropout` returns its input when p is 0 (`aten/src/ATen/native/Dropout.cpp`).
    #[test]
    fn dropout_of_nothing_is_no_op() {
        let cx = forward();
        let x = activation(&cx, &[8]);
        let (events, out) = watch(&cx, || dropout(&x, 0.0));
        assert!(events.is_empty());
        assert_eq!(out.storage_id(), x.storage_id());
    }

    #[test]
    fn without_a_gradient_nothing_is_kept() {
        let cx = forward();
        let x = input(&cx, &[8]);
        for op in [silu, gelu, relu, tanh] {
            let out = op(&x);
            assert!(!out.requires_grad());
        }
        drop(dropout(&x, 0.5));
        drop(x);
        assert_eq!(seen(&cx, 0).len() % 2, 0, "all that came went: {:?}", seen(&cx, 0));
    }
}
