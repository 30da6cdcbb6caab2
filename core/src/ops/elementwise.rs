//! Pointwise arithmetic. Outputs take the layout `TensorIterator` gives them.

use super::cast::full_precision;
use crate::tensor::{Geometry, Tape, Tensor, grads};

fn binary_output(op: &'static str, a: &Tensor, b: &Tensor) -> Tensor {
    let geometry = Geometry::elementwise(&[a.geometry(), b.geometry()]);
    // A zero-dimensional tensor does not widen a dimensioned one of the same kind.
    let dtype = match (a.dims().is_empty(), b.dims().is_empty()) {
        (true, false) if b.dtype().is_float() => b.dtype(),
        (false, true) if a.dtype().is_float() => a.dtype(),
        _ => a.dtype().promote(b.dtype()),
    };
    a.cx().empty(op, geometry, dtype)
}

/// `a + b`.
pub fn add(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), "AddBackward0", &[a, b]);
    let mut out = binary_output("add.Tensor", a, b);
    tape.record([&mut out], |g| {
        let grad = g.grad();
        grads([g.needs(0).then(|| grad.clone()), g.needs(1).then(|| grad.clone())])
    });
    out
}

/// `a - b`.
pub fn sub(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), "SubBackward0", &[a, b]);
    let mut out = binary_output("sub.Tensor", a, b);
    tape.record([&mut out], |g| {
        let other = g.needs(1).then(|| g.like("neg", g.grad()));
        grads([g.needs(0).then(|| g.grad().clone()), other])
    });
    out
}

/// `a * b`; each operand is kept only if the other one needs a gradient.
pub fn mul(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), "MulBackward0", &[a, b]);
    let saved_a = tape.save_if(tape.needs(1), a);
    let saved_b = tape.save_if(tape.needs(0), b);
    let mut out = binary_output("mul.Tensor", a, b);
    tape.record([&mut out], move |g| {
        let (other, this) = (saved_b.get(), saved_a.get());
        let product = |operand: &Tensor| binary_output("mul.Tensor", g.grad(), operand);
        let other_grad = this.as_ref().map(product);
        let self_grad = other.as_ref().map(product);
        grads([self_grad, other_grad])
    });
    out
}

fn scaled(op: &'static str, node: &'static str, x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), node, &[x]);
    let mut out = x.cx().empty(op, Geometry::elementwise(&[x.geometry()]), x.dtype());
    tape.record([&mut out], move |g| grads([Some(g.like(op, g.grad()))]));
    out
}

/// `x * 0.5` from Python: a number wrapped as a CPU scalar.
pub fn mul_scalar(x: &Tensor) -> Tensor {
    scaled("mul.Tensor", "MulBackward0", x)
}

/// `x / 8` from Python.
pub fn div_scalar(x: &Tensor) -> Tensor {
    scaled("div.Tensor", "DivBackward0", x)
}

/// `at::mul(x, Scalar)` from C++.
pub(super) fn mul_cpp_scalar(x: &Tensor) -> Tensor {
    scaled("mul.Scalar", "MulBackward1", x)
}

/// `x + 1.0`.
pub fn add_scalar(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), "AddBackward0", &[x]);
    let mut out = x.cx().empty("add.Tensor", Geometry::elementwise(&[x.geometry()]), x.dtype());
    tape.record([&mut out], |g| grads([Some(g.grad().clone())]));
    out
}

/// `-x`.
pub fn neg(x: &Tensor) -> Tensor {
    scaled("neg", "NegBackward0", x)
}

/// `x.pow(n)` or `torch.pow(x, n)` for a number n; float32 under autocast. Keeps x.
pub fn pow(x: &Tensor) -> Tensor {
    let x = full_precision(x);
    let tape = Tape::new(x.cx(), "PowBackward0", &[&x]);
    let saved = tape.save(&x);
    let mut out = x.cx().empty("pow.Tensor_Scalar", Geometry::elementwise(&[x.geometry()]), x.dtype());
    tape.record([&mut out], move |g| {
        // pow_backward: grad * (exponent * self.pow(exponent - 1))
        let base = saved.unpack();
        let power = g.like("pow.Tensor_Scalar", &base);
        let scaled = g.like("mul.Scalar", &power);
        grads([Some(binary_output("mul.Tensor", g.grad(), &scaled))])
    });
    out
}

/// `torch.rsqrt(x)`; float32 under autocast. Keeps its result.
pub fn rsqrt(x: &Tensor) -> Tensor {
    let x = full_precision(x);
    let tape = Tape::new(x.cx(), "RsqrtBackward0", &[&x]);
    let mut out = x.cx().empty("rsqrt", Geometry::elementwise(&[x.geometry()]), x.dtype());
    let saved = tape.save(&out);
    tape.record([&mut out], move |g| {
        // -0.5 * grad * result.pow(3)
        let result = saved.unpack();
        let cube = g.like("pow.Tensor_Scalar", &result);
        let half = g.like("mul.Scalar", g.grad());
        grads([Some(binary_output("mul.Tensor", &half, &cube))])
    });
    out
}
