//! BLOOM's GELU: an `autograd.Function` spelled out in Python, forward and backward.

use crate::tensor::{Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `x * 0.5 * (1.0 + tanh(0.79788456 * x * (1 + 0.044715 * x * x)))`; keeps x.
pub fn bloom_gelu(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::GeLUFunctionBackward, &[x]);
    let saved = tape.save(x);
    let cx = x.cx();
    let make = |op| cx.empty(op, x.geometry().preserved(), x.dtype());
    let half = make(Op::MulTensor);
    let tanh = tanh_inner(&make);
    let one_plus = make(Op::AddTensor);
    drop(tanh);
    let mut out = make(Op::MulTensor);
    drop((half, one_plus));
    tape.record([&mut out], move |g| {
        let x = saved.unpack();
        let make = |op| g.cx().empty(op, x.geometry().preserved(), x.dtype());
        let tanh = tanh_inner(&make);
        // 0.5 * x * ((1 - tanh * tanh) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + tanh)
        let half = make(Op::MulTensor);
        let square = make(Op::MulTensor);
        let rest = make(Op::RsubScalar);
        drop(square);
        let scaled = make(Op::MulTensor);
        let squared = make(Op::MulTensor);
        drop(scaled);
        let slope = make(Op::AddTensor);
        drop(squared);
        let product = make(Op::MulTensor);
        drop((rest, slope));
        let left = make(Op::MulTensor);
        drop((half, product));
        let one_plus = make(Op::AddTensor);
        let right = make(Op::MulTensor);
        drop(one_plus);
        let sum = make(Op::AddTensor);
        drop((left, right));
        let out = make(Op::MulTensor);
        drop((sum, tanh));
        grads([Some(out)])
    });
    out
}

/// `tanh(0.79788456 * x * (1 + 0.044715 * x * x))`.
fn tanh_inner(make: &dyn Fn(Op) -> Tensor) -> Tensor {
    let scaled = make(Op::MulTensor);
    let small = make(Op::MulTensor);
    let squared = make(Op::MulTensor);
    drop(small);
    let one_plus = make(Op::AddTensor);
    drop(squared);
    let _product = make(Op::MulTensor);
    drop((scaled, one_plus));
    make(Op::Tanh)
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
