//! Activations and dropout.

use crate::tensor::{DType, Geometry, Tape, Tensor, grads};

/// An op that keeps its input, with one kernel for its backward.
fn keeps_input(op: &'static str, node: &'static str, backward: &'static str, x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), node, &[x]);
    let saved = tape.save(x);
    let mut out = x.cx().empty(op, Geometry::elementwise(&[x.geometry()]), x.dtype());
    tape.record([&mut out], move |g| {
        let x = saved.unpack();
        grads([Some(g.empty(backward, Geometry::elementwise(&[g.grad().geometry(), x.geometry()]), x.dtype()))])
    });
    out
}

/// An op that keeps its result, with one kernel for its backward.
fn keeps_result(op: &'static str, node: &'static str, backward: &'static str, x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), node, &[x]);
    let mut out = x.cx().empty(op, Geometry::elementwise(&[x.geometry()]), x.dtype());
    let saved = tape.save(&out);
    tape.record([&mut out], move |g| {
        let result = saved.unpack();
        let geometry = Geometry::elementwise(&[g.grad().geometry(), result.geometry()]);
        grads([Some(g.empty(backward, geometry, result.dtype()))])
    });
    out
}

/// `silu(x)`.
pub fn silu(x: &Tensor) -> Tensor {
    keeps_input("silu", "SiluBackward0", "silu_backward", x)
}

/// `gelu(x)`, exact or tanh.
pub fn gelu(x: &Tensor) -> Tensor {
    keeps_input("gelu", "GeluBackward0", "gelu_backward", x)
}

/// `relu(x)`, not in place.
pub fn relu(x: &Tensor) -> Tensor {
    keeps_result("relu", "ReluBackward0", "threshold_backward", x)
}

/// `tanh(x)`.
pub fn tanh(x: &Tensor) -> Tensor {
    keeps_result("tanh", "TanhBackward0", "tanh_backward", x)
}

/// `dropout(x, p)` in training: `native_dropout` and its bool mask; nothing at all for p = 0.
pub fn dropout(x: &Tensor, p: f64) -> Tensor {
    if p == 0.0 {
        return x.clone();
    }
    let tape = Tape::new(x.cx(), "NativeDropoutBackward0", &[x]);
    let geometry = x.geometry().preserved();
    let mut out = x.cx().empty("native_dropout", geometry.clone(), x.dtype());
    let mask = x.cx().empty("native_dropout", geometry, DType::Bool);
    let saved = tape.save(&mask);
    drop(mask);
    tape.record([&mut out], move |g| {
        let _mask = saved.unpack();
        grads([Some(g.like("native_dropout_backward", g.grad()))])
    });
    out
}
