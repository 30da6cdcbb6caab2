//! BLOOM's GELU: an `autograd.Function` spelled out in Python, forward and backward.

use std::rc::Rc;

use crate::tensor::{Context, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `x * 0.5 * (1.0 + tanh(0.79788456 * x * (1 + 0.044715 * x * x)))`; keeps x.
pub fn bloom_gelu(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::GeLUFunctionBackward, &[x]);
    let saved = tape.save(x);
    let cx = x.cx();
    let make = |op, operands| pointwise(cx, x, op, operands);
    let half = make(Op::MulTensor, 1);
    let tanh = tanh_inner(&make);
    let one_plus = make(Op::AddTensor, 1);
    drop(tanh);
    let mut out = make(Op::MulTensor, 2);
    drop((half, one_plus));
    tape.record([&mut out], move |g| {
        let x = saved.unpack();
        let make = |op, operands| pointwise(g.cx(), &x, op, operands);
        let tanh = tanh_inner(&make);
        // 0.5 * x * ((1 - tanh * tanh) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + tanh)
        let half = make(Op::MulTensor, 1);
        let square = make(Op::MulTensor, 2);
        let rest = make(Op::RsubScalar, 1);
        drop(square);
        let scaled = make(Op::MulTensor, 1);
        let squared = make(Op::MulTensor, 2);
        drop(scaled);
        let slope = make(Op::AddTensor, 1);
        drop(squared);
        let product = make(Op::MulTensor, 2);
        drop((rest, slope));
        let left = make(Op::MulTensor, 2);
        drop((half, product));
        let one_plus = make(Op::AddTensor, 1);
        let right = make(Op::MulTensor, 1);
        drop(one_plus);
        let sum = make(Op::AddTensor, 2);
        drop((left, right));
        let out = make(Op::MulTensor, 2);
        drop((sum, tanh));
        grads([Some(out)])
    });
    out
}

/// A pointwise kernel over one or two tensors of x's size.
fn pointwise(cx: &Rc<Context>, x: &Tensor, op: Op, operands: usize) -> Tensor {
    cx.launch(op, &[x, x][..operands]).make_like(x)
}

/// `tanh(0.79788456 * x * (1 + 0.044715 * x * x))`.
fn tanh_inner(make: &dyn Fn(Op, usize) -> Tensor) -> Tensor {
    let scaled = make(Op::MulTensor, 1);
    let small = make(Op::MulTensor, 1);
    let squared = make(Op::MulTensor, 2);
    drop(small);
    let one_plus = make(Op::AddTensor, 1);
    drop(squared);
    let _product = make(Op::MulTensor, 2);
    drop((scaled, one_plus));
    make(Op::Tanh, 1)
}

#[cfg(test)]
mod tests {
    use super::bloom_gelu;
    use crate::ops::neg;
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward, made, watch};

    /// Nine results forward and eighteen backward; only the input is kept between them.
    #[test]
    fn blooms_gelu_keeps_its_input_alone() {
        let cx = forward();
        let x = neg(&activation(&cx, &[8]));
        let (events, out) = watch(&cx, || bloom_gelu(&x));
        assert_eq!(made(&events).len(), 9, "{events:?}");
        drop(x);
        assert_eq!(alive(&cx, Kind::Saved), ["neg [8] float32"]);
        assert_eq!(made(&backward_of(out)).len(), 1 + 6 + 12 + 1);
    }
}
