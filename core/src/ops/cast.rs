//! Casts, and what autocast does to an op's arguments (`cached_cast` in `autocast_mode.cpp`).

use crate::tensor::{DType, Kind, Tape, Tensor, grads};

/// `x.to(dtype)`: the tensor itself when it has that dtype already.
pub fn to(x: &Tensor, dtype: DType) -> Tensor {
    if x.dtype() == dtype {
        return x.clone();
    }
    let tape = Tape::new(x.cx(), "ToCopyBackward0", &[x]);
    let mut out = x.cx().empty("_to_copy", x.geometry().preserved(), dtype);
    let from = x.dtype();
    tape.record([&mut out], move |g| grads([Some(g.empty("_to_copy", g.grad().geometry().preserved(), from))]));
    out
}

/// An argument of an op on autocast's lower-precision list. The copy of a trainable float32 leaf is made once a region.
pub fn lower_precision(x: &Tensor) -> Tensor {
    let Some(dtype) = x.cx().autocast_dtype() else { return x.clone() };
    if !x.dtype().is_float() || x.dtype() == dtype {
        return x.clone();
    }
    let cx = x.cx();
    if !cx.is_parameter(x) {
        return to(x, dtype);
    }
    let cast = || cx.counting_as(Kind::AutocastCopy, || to(x, dtype));
    // Only what is trained is cached: a frozen weight is cast again at every use.
    if x.dtype() != DType::Float32 || !x.requires_grad() {
        return cast();
    }
    if let Some(copy) = cx.cached_copy(x) {
        return copy;
    }
    let copy = cast();
    cx.cache_copy(x, &copy);
    copy
}

/// An argument of an op on autocast's float32 list.
pub fn full_precision(x: &Tensor) -> Tensor {
    if x.cx().autocast_dtype().is_some() && x.dtype().is_half() { to(x, DType::Float32) } else { x.clone() }
}
