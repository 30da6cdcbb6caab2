//! Pointwise arithmetic. Outputs take the layout `TensorIterator` gives them.

use super::cast::full_precision;
use crate::tensor::{Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// A pointwise kernel over two tensors.
pub(super) fn binary(op: Op, a: &Tensor, b: &Tensor) -> Tensor {
    let geometry = Geometry::elementwise(&[a.geometry(), b.geometry()]);
    // A zero-dimensional tensor does not widen a dimensioned one of the same kind.
    let dtype = match (a.dims().is_empty(), b.dims().is_empty()) {
        (true, false) if b.dtype().is_float() => b.dtype(),
        (false, true) if a.dtype().is_float() => a.dtype(),
        _ => a.dtype().promote(b.dtype()),
    };
    a.cx().launch(op, &[a, b]).of(dtype).make(geometry, dtype)
}

/// A pointwise kernel over one tensor, in the layout that `TensorIterator` gives its result.
pub(super) fn unary(op: Op, x: &Tensor) -> Tensor {
    x.cx().launch(op, &[x]).make(Geometry::elementwise(&[x.geometry()]), x.dtype())
}

/// `a + b`.
pub fn add(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), GradFn::AddBackward0, &[a, b]);
    let mut out = binary(Op::AddTensor, a, b);
    tape.record([&mut out], |g| {
        let grad = g.grad();
        grads([g.needs(0).then(|| grad.clone()), g.needs(1).then(|| grad.clone())])
    });
    out
}

/// `a - b`.
pub fn sub(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), GradFn::SubBackward0, &[a, b]);
    let mut out = binary(Op::SubTensor, a, b);
    tape.record([&mut out], |g| {
        let other = g.needs(1).then(|| g.like(Op::Neg, g.grad(), &[]));
        grads([g.needs(0).then(|| g.grad().clone()), other])
    });
    out
}

/// `a * b`; each operand is kept only if the other one needs a gradient.
pub fn mul(a: &Tensor, b: &Tensor) -> Tensor {
    let tape = Tape::new(a.cx(), GradFn::MulBackward0, &[a, b]);
    let saved_b = tape.save_if(tape.needs(0), b);
    let saved_a = tape.save_if(tape.needs(1), a);
    let mut out = binary(Op::MulTensor, a, b);
    tape.record([&mut out], move |g| {
        let (other, this) = (saved_b.get(), saved_a.get());
        let product = |operand: &Tensor| binary(Op::MulTensor, g.grad(), operand);
        let other_grad = this.as_ref().map(product);
        let self_grad = other.as_ref().map(product);
        grads([self_grad, other_grad])
    });
    out
}

fn scaled(op: Op, grad_fn: GradFn, x: &Tensor) -> Tensor {
    scaled_on(Tape::new(x.cx(), grad_fn, &[x]), op, x, |_| {})
}

fn scaled_on(tape: Tape, op: Op, x: &Tensor, keep: impl FnOnce(&Tape)) -> Tensor {
    keep(&tape);
    let mut out = unary(op, x);
    tape.record([&mut out], move |g| grads([Some(g.like(op, g.grad(), &[]))]));
    out
}

/// `x * 0.5` from Python: a number wrapped as a CPU scalar.
pub fn mul_scalar(x: &Tensor) -> Tensor {
    scaled(Op::MulTensor, GradFn::MulBackward0, x)
}

/// `x / 8` from Python.
pub fn div_scalar(x: &Tensor) -> Tensor {
    scaled(Op::DivTensor, GradFn::DivBackward0, x)
}

/// `x / y` of a `y` that is one number in a tensor of the machine's: kept, where a number of Python's is not.
pub fn div_host_number(x: &Tensor) -> Tensor {
    scaled_on(Tape::new(x.cx(), GradFn::DivBackward0, &[x]), Op::DivTensor, x, Tape::save_nothing)
}

/// `at::mul(x, Scalar)` from C++.
pub(super) fn mul_cpp_scalar(x: &Tensor) -> Tensor {
    scaled(Op::MulScalar, GradFn::MulBackward1, x)
}

/// `x + 1.0`.
pub fn add_scalar(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::AddBackward0, &[x]);
    let mut out = unary(Op::AddTensor, x);
    tape.record([&mut out], |g| grads([Some(g.grad().clone())]));
    out
}

/// `-x`.
pub fn neg(x: &Tensor) -> Tensor {
    scaled(Op::Neg, GradFn::NegBackward0, x)
}

/// `x.pow(n)` or `torch.pow(x, n)` for a number n; float32 under autocast. Keeps x.
pub fn pow(x: &Tensor) -> Tensor {
    let x = full_precision(x);
    let tape = Tape::new(x.cx(), GradFn::PowBackward0, &[&x]);
    let saved = tape.save(&x);
    let mut out = unary(Op::PowTensorScalar, &x);
    tape.record([&mut out], move |g| {
        // pow_backward: grad * (exponent * self.pow(exponent - 1))
        let base = saved.unpack();
        let power = g.like(Op::PowTensorScalar, &base, &[]);
        let scaled = g.like(Op::MulScalar, &power, &[]);
        grads([Some(binary(Op::MulTensor, g.grad(), &scaled))])
    });
    out
}

/// `torch.rsqrt(x)`; float32 under autocast. Keeps its result.
pub fn rsqrt(x: &Tensor) -> Tensor {
    let x = full_precision(x);
    let tape = Tape::new(x.cx(), GradFn::RsqrtBackward0, &[&x]);
    let mut out = unary(Op::Rsqrt, &x);
    let saved = tape.save(&out);
    tape.record([&mut out], move |g| {
        // -0.5 * grad * result.pow(3)
        let result = saved.unpack();
        let cube = g.like(Op::PowTensorScalar, &result, &[]);
        let half = g.like(Op::MulScalar, g.grad(), &[]);
        grads([Some(binary(Op::MulTensor, &half, &cube))])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{self, neg, transpose};
    use crate::tensor::testing::{
        activation, activation_of, alive, backward_of, forward, frozen_of, input, input_of, made, watch,
    };
    use crate::tensor::{DType, Kind};

    fn fresh(x: &Tensor) -> Tensor {
        ops::neg(x)
    }

    /// `derivatives.yaml`: `self: mul_tensor_backward(grad, other, ...)`, `other: mul_tensor_backward(grad, self, ...)`;
    /// the generated code saves `self` only if `other` needs a gradient, and the other way round.
    #[test]
    fn mul_keeps_an_operand_only_for_the_other_ones_gradient() {
        let kept = |a_wanted: bool, b_wanted: bool| {
            let cx = forward();
            let operand = |wanted: bool| {
                if wanted { fresh(&activation(&cx, &[8])) } else { fresh(&input(&cx, &[8])) }
            };
            let out = mul(&operand(a_wanted), &operand(b_wanted));
            let kept = alive(&cx, Kind::Saved).len();
            drop(out);
            kept
        };
        assert_eq!([kept(true, true), kept(true, false), kept(false, true), kept(false, false)], [2, 1, 1, 0]);
    }

    /// A multiplication by a Python number keeps nothing on the device: `other` is a number on the host.
    #[test]
    fn sums_negations_and_products_with_numbers_keep_nothing() {
        for op in [neg as fn(&Tensor) -> Tensor, mul_scalar, div_scalar, add_scalar, mul_cpp_scalar, |x| add(x, x)] {
            let cx = forward();
            let out = op(&fresh(&activation(&cx, &[8])));
            assert!(alive(&cx, Kind::Saved).is_empty());
            drop(out);
        }
    }

    /// The gradient of a sum is the gradient itself, of a difference a negation, of a number's sum nothing new.
    #[test]
    fn gradients_of_sums_and_differences() {
        let cx = forward();
        let (a, b) = (fresh(&activation(&cx, &[8])), fresh(&activation(&cx, &[8])));
        assert_eq!(
            made(&backward_of(sub(&a, &b))),
            ["ones_like", "neg", "neg", "neg"],
            "SubBackward's and the two before"
        );
        let x = activation(&cx, &[8]);
        assert_eq!(made(&backward_of(add_scalar(&ops::tanh(&x)))), ["ones_like", "tanh_backward"]);
    }

    /// The generated functions compute gradients in the order of the argument names: `other` before `self`.
    #[test]
    fn mul_computes_the_gradient_of_the_other_operand_first() {
        let cx = forward();
        let (a, b) = (activation(&cx, &[4, 8]), activation_of(&cx, &[8], DType::BFloat16));
        let events = backward_of(mul(&a, &b));
        let births: Vec<&str> = events.iter().filter(|e| e.starts_with("+mul")).map(String::as_str).collect();
        // grad * self is summed and cast for b; grad * other is a's.
        assert_eq!(births, ["+mul.Tensor [4, 8] float32", "+mul.Tensor [4, 8] float32"]);
        let sum = events.iter().position(|e| e.starts_with("+sum")).unwrap();
        assert!(events.iter().rposition(|e| e.starts_with("+mul")).unwrap() < sum, "{events:?}");
    }

    /// `pow_backward`: `grad * (exponent * self.pow(exponent - 1))`; keeps self.
    #[test]
    fn pow_keeps_its_input_and_makes_three_buffers() {
        let cx = forward();
        let out = pow(&fresh(&activation(&cx, &[8])));
        assert_eq!(alive(&cx, Kind::Saved), ["neg [8] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "pow.Tensor_Scalar", "mul.Scalar", "mul.Tensor", "neg"]);
    }

    /// `rsqrt`: `-0.5 * grad * result.pow(3)`; keeps its result. C++ evaluates the operands of a product from the last.
    #[test]
    fn rsqrt_keeps_its_result_and_makes_three_buffers() {
        let cx = forward();
        let out = rsqrt(&fresh(&activation(&cx, &[8])));
        assert_eq!(alive(&cx, Kind::Saved), ["rsqrt [8] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "pow.Tensor_Scalar", "mul.Scalar", "mul.Tensor", "neg"]);
    }

    /// `c10::promote_types`, and `result_type`'s rule that a zero-dimensional tensor does not widen a dimensioned one.
    #[test]
    fn results_are_promoted() {
        let cx = forward();
        let of = |sizes: &[u64], dtype| input_of(&cx, sizes, dtype);
        let dtype = |a: Tensor, b: Tensor| add(&a, &b).dtype();
        assert_eq!(dtype(of(&[8], DType::BFloat16), of(&[8], DType::Float32)), DType::Float32);
        assert_eq!(dtype(of(&[8], DType::BFloat16), of(&[8], DType::Float16)), DType::Float32);
        assert_eq!(dtype(of(&[8], DType::BFloat16), of(&[], DType::Float32)), DType::BFloat16);
        assert_eq!(dtype(of(&[], DType::Float16), of(&[], DType::Float32)), DType::Float32);
        assert_eq!(dtype(of(&[8], DType::Int64), of(&[8], DType::BFloat16)), DType::BFloat16);
    }

    /// `TensorIterator` takes the memory order of its operands: heads stay where the projection put them.
    #[test]
    fn results_keep_the_operands_memory_order() {
        let cx = forward();
        let x = transpose(&frozen_of(&cx, &[2, 16, 4, 8], DType::Float32), 1, 2);
        let cos = input(&cx, &[1, 1, 16, 8]);
        assert_eq!(mul(&x, &cos).geometry().strides(), x.geometry().strides());
        let (events, _) = watch(&cx, || ops::contiguous(&transpose(&mul(&x, &cos), 1, 2)));
        assert_eq!(made(&events), ["mul.Tensor"], "back in order, contiguous() is free");
    }
}
