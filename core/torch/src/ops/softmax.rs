//! Softmax.

use super::cast::to;
use super::inside;
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// The names of a softmax: forward op, node, backward op.
type Names = (Op, GradFn, Op);

const SOFTMAX: Names = (Op::Softmax, GradFn::SoftmaxBackward0, Op::SoftmaxBackwardData);
const LOG_SOFTMAX: Names = (Op::LogSoftmax, GradFn::LogSoftmaxBackward0, Op::LogSoftmaxBackwardData);

/// `softmax(x, -1)`; in float32 under autocast. Keeps its result.
pub fn softmax(x: &Tensor) -> Tensor {
    if x.cx().autocast_dtype().is_some() { softmax_fp32(x) } else { softmax_as(SOFTMAX, x, x.dtype()) }
}

/// `softmax(x, -1, dtype=torch.float32)`.
pub fn softmax_fp32(x: &Tensor) -> Tensor {
    softmax_to(x, DType::Float32)
}

/// `softmax(x, -1, dtype=dtype)`: x is cast first, but for float16 to float32, which happens inside the kernel
/// (`half_to_float`; `softmax` in `aten/src/ATen/native/SoftMax.cpp`). Autocast leaves it alone.
pub fn softmax_to(x: &Tensor, dtype: DType) -> Tensor {
    let inside = x.dtype() == DType::Float16 && dtype == DType::Float32;
    let x = if inside { x.clone() } else { to(x, dtype) };
    softmax_as(SOFTMAX, &x, dtype)
}

/// `log_softmax(x, -1)` in the input's own dtype.
pub(super) fn log_softmax(x: &Tensor) -> Tensor {
    softmax_as(LOG_SOFTMAX, x, x.dtype())
}

fn softmax_as((op, node, backward): Names, x: &Tensor, dtype: DType) -> Tensor {
    let tape = Tape::new(x.cx(), node, &[x]);
    let mut out = x.cx().launch(op, &[x]).make_sizes(x.dims(), dtype);
    // `input_.contiguous()` (`host_softmax` in `aten/src/ATen/native/cuda/SoftMax.cu`).
    drop(inside::Scratch::contiguous(x.cx(), op, x.geometry(), x.dtype()));
    let saved = tape.save(&out);
    let from = x.dtype();
    tape.record([&mut out], move |g| {
        let result = saved.unpack();
        let gradient = g.make(backward, &[g.grad(), &result], Geometry::contiguous(result.dims()), from);
        if backward == SOFTMAX.2 {
            drop(inside::softmax_backward(g.cx(), backward, result.dims(), result.dtype()));
        }
        grads([Some(gradient)])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{softmax, softmax_fp32, softmax_to};
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

    /// `_softmax(x, dim, half_to_float=True)`: no copy of the input, and a gradient in float16.
    #[test]
    fn a_float16_softmax_in_float32_converts_inside_its_kernel() {
        let cx = forward();
        let x = activation_of(&cx, &[4, 8], DType::Float16);
        let (events, out) = watch(&cx, || softmax_fp32(&x));
        assert_eq!(events, ["+_softmax [4, 8] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "_softmax_backward_data"]);
        assert_eq!(gradient(&x).unwrap().dtype(), DType::Float16);
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

    /// Falcon's: float32 scores to half probabilities are cast before the kernel.
    #[test]
    fn a_softmax_in_half_of_float32_is_cast_first() {
        let cx = forward();
        let x = activation_of(&cx, &[4, 8], DType::Float32);
        let (events, _out) = watch(&cx, || softmax_to(&x, DType::Float16));
        assert_eq!(events[..2], ["+_to_copy [4, 8] float16", "+_softmax [4, 8] float16"]);
    }
}
