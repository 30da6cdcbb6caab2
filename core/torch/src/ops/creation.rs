//! Tensors made from nothing.

use std::rc::Rc;

use crate::Op;
use crate::tensor::{Context, DType, Tensor};

/// `torch.empty(sizes)`.
pub fn empty(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    cx.empty_sizes(Op::EmptyMemoryFormat, sizes, dtype)
}

/// Labels or targets of these sizes; in inference there are none, and a tensor without elements stands in their place.
pub fn labels(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    empty(cx, if cx.is_inference() { &[0] } else { sizes }, dtype)
}

/// `torch.arange(n)`, int64.
pub fn arange(cx: &Rc<Context>, n: u64) -> Tensor {
    cx.empty_sizes(Op::Arange, &[n], DType::Int64)
}

/// A tensor `op` makes with no gradient: masks, comparisons, integer arithmetic.
pub fn fresh(cx: &Rc<Context>, op: Op, sizes: &[u64], dtype: DType) -> Tensor {
    cx.empty_sizes(op, sizes, dtype)
}
