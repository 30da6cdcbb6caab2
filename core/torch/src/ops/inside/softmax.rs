//! The backward of softmax.

use std::rc::Rc;

use super::Scratch;
use crate::Op;
use crate::tensor::{Context, DType};

/// `_softmax_backward_data`: the product of gradient and result, as large as the result (`Tensor tmp = grad * output` in
/// `softmax_backward_cuda_out` of `aten/src/ATen/native/cuda/SoftMax.cu`). `_log_softmax_backward_data` makes none.
pub fn softmax_backward<'c>(cx: &'c Rc<Context>, op: Op, sizes: &[u64], dtype: DType) -> Option<Scratch<'c>> {
    let mut scratch = Scratch::of(cx, op)?;
    scratch.hold(sizes, dtype);
    Some(scratch)
}
