//! Complex numbers: pairs of floats seen as one number each, and turned by a product (the rotary embeddings of DeepSeek V2
//! and Llama 4).

use super::elementwise::binary;
use crate::tensor::{DType, Geometry, Gradients, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `torch.polar(torch.ones_like(angle), angle)` of float32, which no gradient goes through.
pub fn polar(angle: &Tensor) -> Tensor {
    let ones = angle.cx().launch(Op::OnesLike, &[]).make_like(angle);
    let geometry = Geometry::elementwise(&[ones.geometry(), angle.geometry()]);
    angle.cx().launch(Op::Polar, &[&ones, angle]).make(geometry, DType::Complex64)
}

/// `torch.view_as_complex(x)` of float32 whose last dimension is a pair. Its backward is
/// `view_as_real(grad.contiguous().resolve_conj())`.
pub fn view_as_complex(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::ViewAsComplexBackward0, &[x]);
    let mut out = paired(x);
    tape.record([&mut out], |g| grads([Some(unpaired(&contiguous_gradient(g)))]));
    out
}

/// `torch.view_as_real(x)`: a last dimension of pairs. Its backward is `view_as_complex(grad.contiguous())`.
pub fn view_as_real(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::ViewAsRealBackward0, &[x]);
    let mut out = unpaired(x);
    tape.record([&mut out], |g| grads([Some(paired(&contiguous_gradient(g)))]));
    out
}

fn paired(x: &Tensor) -> Tensor {
    x.view_of(x.geometry().paired(), DType::Complex64)
}

fn unpaired(x: &Tensor) -> Tensor {
    x.view_of(x.geometry().unpaired(), DType::Float32)
}

/// `grad.contiguous()` inside a formula.
fn contiguous_gradient(g: &Gradients<'_>) -> Tensor {
    let grad = g.grad();
    if grad.geometry().is_contiguous() {
        return grad.clone();
    }
    g.make(Op::Clone, &[grad], Geometry::contiguous(grad.dims()), grad.dtype())
}

/// `x * factor` of complex numbers, where no gradient is asked of the factor: it is kept, and its conjugate is written out
/// for the product of backward, which takes no lazy one (`ConjugateFallback.cpp`: `resolve_conj` clones).
pub fn mul_complex(x: &Tensor, factor: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::MulBackward0, &[x]);
    let saved = tape.save(factor);
    let mut out = binary(Op::MulTensor, x, factor);
    tape.record([&mut out], move |g| {
        let conjugate = g.like(Op::Clone, &saved.unpack(), &[]);
        grads([Some(binary(Op::MulTensor, g.grad(), &conjugate))])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{mul_complex, polar, view_as_complex, view_as_real};
    use crate::ops::{neg, transpose, view};
    use crate::tensor::testing::{activation, alive, backward_of, forward, input, made, watch};
    use crate::tensor::{DType, Kind};

    /// Of a pair each they are views; the product is kept by nobody, its factor is.
    #[test]
    fn a_turn_keeps_its_factor_and_conjugates_it_on_the_way_back() {
        let cx = forward();
        let angles = input(&cx, &[1, 4, 1, 2]);
        let (events, factor) = watch(&cx, || polar(&angles));
        let expected =
            ["+ones_like [1, 4, 1, 2] float32", "+polar [1, 4, 1, 2] complex64", "-ones_like [1, 4, 1, 2] float32"];
        assert_eq!(events, expected);
        let x = neg(&activation(&cx, &[2, 4, 3, 4]));
        let (events, out) =
            watch(&cx, || view_as_real(&mul_complex(&view_as_complex(&view(&x, &[2, 4, 3, 2, 2])), &factor)));
        assert_eq!(events, ["+mul.Tensor [2, 4, 3, 2] complex64"]);
        assert_eq!((out.dims(), out.dtype()), (&[2, 4, 3, 2, 2][..], DType::Float32));
        drop((x, factor));
        assert_eq!(alive(&cx, Kind::Saved), ["polar [1, 4, 1, 2] complex64"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "clone", "mul.Tensor", "neg"]);
    }

    /// `derivatives.yaml`: both views make their gradient contiguous first.
    #[test]
    fn a_gradient_in_another_order_is_copied_by_either_view() {
        let cx = forward();
        let x = transpose(&neg(&activation(&cx, &[2, 4, 3, 2])), 1, 2);
        let backward = backward_of(neg(&view_as_real(&view_as_complex(&x))));
        assert_eq!(made(&backward), ["ones_like", "neg", "clone", "neg", "clone"], "the last by the leaf");
    }
}
