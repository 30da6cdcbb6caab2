//! Tensors made from nothing.

use std::rc::Rc;

use crate::tensor::{Context, DType, Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `torch.empty_strided(sizes)`: a parameter or buffer, filled from elsewhere as the model is loaded.
pub fn loaded(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    cx.empty_sizes(Op::EmptyStrided, sizes, dtype)
}

/// A tensor whose storage holds nothing (`untyped_storage().resize_(0)`).
pub(crate) fn unallocated(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    cx.allocate(Op::EmptyStrided, Geometry::contiguous(sizes), dtype, 0)
}

/// A tensor in the machine's own memory: none of the card's.
pub fn elsewhere(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    unallocated(cx, sizes, dtype)
}

/// A scalar that goes to another card: nothing is made of it here, and its gradient comes from there (`Gather` and `Scatter` of
/// `torch/nn/parallel/_functions.py`).
pub fn sent_away(scalar: &Tensor) -> Tensor {
    let cx = scalar.cx();
    let tape = Tape::new(cx, GradFn::GatherBackward, &[scalar]);
    let dtype = scalar.dtype();
    let mut there = unallocated(cx, &[0], dtype);
    tape.record([&mut there], move |g| grads([Some(g.make(Op::EmptyStrided, &[], Geometry::contiguous(&[]), dtype))]));
    there
}

/// `torch.zeros_like(x)`, in the order that x lies in.
pub fn zeros_like(x: &Tensor) -> Tensor {
    x.cx().launch(Op::ZerosLike, &[]).make_like(x)
}

/// `torch.empty(sizes)`.
pub fn empty(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    cx.empty_sizes(Op::EmptyMemoryFormat, sizes, dtype)
}

/// [`empty`] of a geometry that several have.
pub fn empty_of(cx: &Rc<Context>, geometry: Geometry, dtype: DType) -> Tensor {
    cx.empty(Op::EmptyMemoryFormat, geometry, dtype)
}

/// Labels or targets of these sizes; in inference there are none, and a tensor without elements stands in their place.
pub fn labels(cx: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    empty(cx, if cx.is_inference() { &[0] } else { sizes }, dtype)
}

/// `torch.arange(n)`, int64.
pub fn arange(cx: &Rc<Context>, n: u64) -> Tensor {
    cx.launch(Op::Arange, &[]).make_sizes(&[n], DType::Int64)
}
