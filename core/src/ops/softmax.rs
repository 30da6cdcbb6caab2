//! Softmax.

use super::cast::{full_precision, to};
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};

/// `softmax(x, -1)`; float32 under autocast. Keeps its result.
pub fn softmax(x: &Tensor) -> Tensor {
    softmax_as("_softmax", "SoftmaxBackward0", "_softmax_backward_data", &full_precision(x))
}

/// `softmax(x, -1, dtype=torch.float32)`: a half input goes straight to a float32 result.
pub fn softmax_fp32(x: &Tensor) -> Tensor {
    if x.dtype() == DType::Float32 {
        return softmax(x);
    }
    softmax_as("_softmax", "SoftmaxBackward0", "_softmax_backward_data", &to(x, DType::Float32))
}

/// `log_softmax(x, -1)` of an already cast input.
pub(super) fn log_softmax(x: &Tensor) -> Tensor {
    softmax_as("_log_softmax", "LogSoftmaxBackward0", "_log_softmax_backward_data", x)
}

fn softmax_as(op: &'static str, node: &'static str, backward: &'static str, x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), node, &[x]);
    let mut out = x.cx().empty(op, Geometry::contiguous(x.dims()), x.dtype());
    let saved = tape.save(&out);
    let dtype = x.dtype();
    tape.record([&mut out], move |g| {
        let result = saved.unpack();
        grads([Some(g.empty(backward, Geometry::contiguous(result.dims()), dtype))])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{softmax, softmax_fp32};
    use crate::ops::neg;
    use crate::tensor::testing::{activation, activation_of, alive, backward_of, forward, gradient, made, watch};
    use crate::tensor::{DType, Kind};

    /// `_softmax_backward_data(grad, result, dim, dtype)`.
    #[test]
    fn softmax_keeps_its_result() {
        let cx = forward();
        let out = softmax(&neg(&activation(&cx, &[4, 8])));
        assert_eq!(alive(&cx, Kind::Saved), ["_softmax [4, 8] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "_softmax_backward_data", "neg"]);
    }

    /// `softmax(dtype=torch.float32)` of bfloat16: cast first, and the gradient is cast back.
    #[test]
    fn a_bfloat16_softmax_in_float32_is_cast_first() {
        let cx = forward();
        let x = activation_of(&cx, &[4, 8], DType::BFloat16);
        let (events, out) = watch(&cx, || softmax_fp32(&x));
        assert_eq!(events, ["+_to_copy [4, 8] float32", "+_softmax [4, 8] float32", "-_to_copy [4, 8] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "_softmax_backward_data", "_to_copy"]);
        assert_eq!(gradient(&x).unwrap().dtype(), DType::BFloat16);
    }
}
