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
