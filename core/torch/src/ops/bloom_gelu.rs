//! BLOOM's GELU: an `autograd.Function` spelled out in Python, forward and backward.

use crate::tensor::{Tape, Tensor, grads};

/// `x * 0.5 * (1.0 + tanh(0.79788456 * x * (1 + 0.044715 * x * x)))`; keeps x.
pub fn bloom_gelu(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), "GeLUFunctionBackward", &[x]);
    let saved = tape.save(x);
    let cx = x.cx();
    let make = |op| cx.empty(op, x.geometry().preserved(), x.dtype());
    let half = make("mul.Tensor");
    let tanh = tanh_inner(&make);
    let one_plus = make("add.Tensor");
    drop(tanh);
    let mut out = make("mul.Tensor");
    drop((half, one_plus));
    tape.record([&mut out], move |g| {
        let x = saved.unpack();
        let make = |op| g.cx().empty(op, x.geometry().preserved(), x.dtype());
        let tanh = tanh_inner(&make);
        // 0.5 * x * ((1 - tanh * tanh) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + tanh)
        let half = make("mul.Tensor");
        let square = make("mul.Tensor");
        let rest = make("rsub.Scalar");
        drop(square);
        let scaled = make("mul.Tensor");
        let squared = make("mul.Tensor");
        drop(scaled);
        let slope = make("add.Tensor");
        drop(squared);
        let product = make("mul.Tensor");
        drop((rest, slope));
        let left = make("mul.Tensor");
        drop((half, product));
        let one_plus = make("add.Tensor");
        let right = make("mul.Tensor");
        drop(one_plus);
        let sum = make("add.Tensor");
        drop((left, right));
        let out = make("mul.Tensor");
        drop((sum, tanh));
        grads([Some(out)])
    });
    out
}

/// `tanh(0.79788456 * x * (1 + 0.044715 * x * x))`.
fn tanh_inner(make: &dyn Fn(&'static str) -> Tensor) -> Tensor {
    let scaled = make("mul.Tensor");
    let small = make("mul.Tensor");
    let squared = make("mul.Tensor");
    drop(small);
    let one_plus = make("add.Tensor");
    drop(squared);
    let _product = make("mul.Tensor");
    drop((scaled, one_plus));
    make("tanh")
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
