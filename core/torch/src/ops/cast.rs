//! Casts, and what autocast does to an op's arguments (`cached_cast` in `autocast_mode.cpp`).

use super::conv::is_channels_last;
use crate::tensor::{DType, Kind, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `x.to(dtype)`: the tensor itself when it has that dtype already.
pub fn to(x: &Tensor, dtype: DType) -> Tensor {
    if x.dtype() == dtype {
        return x.clone();
    }
    let tape = Tape::new(x.cx(), GradFn::ToCopyBackward0, &[x]);
    let mut out = x.cx().launch(Op::ToCopy, &[x]).make(x.geometry().preserved(), dtype);
    let from = x.dtype();
    tape.record([&mut out], move |g| {
        grads([Some(g.make(Op::ToCopy, &[g.grad()], g.grad().geometry().preserved(), from))])
    });
    out
}

/// `x.to(dtype, memory_format=torch.contiguous_format)`: a row-major copy in another dtype. Of this dtype it is x itself, in
/// whatever order it lies, but where that is channels last, which four dimensions are that were turned round column by column
/// (`to_will_alias` in `aten/src/ATen/native/TensorConversions.cpp` asks `suggest_memory_format`, which calls all else contiguous).
pub fn to_row_major(x: &Tensor, dtype: DType) -> Tensor {
    let from = x.dtype();
    if from == dtype && !is_channels_last(x.geometry()) {
        return x.clone();
    }
    let tape = Tape::new(x.cx(), GradFn::ToCopyBackward0, &[x]);
    let mut out = x.cx().launch(Op::ToCopy, &[x]).make_sizes(x.dims(), dtype);
    tape.record([&mut out], move |g| {
        // `_to_copy_backward` is a `to` without an order.
        let gradient = if g.grad().dtype() == from {
            g.grad().clone()
        } else {
            g.make(Op::ToCopy, &[g.grad()], g.grad().geometry().preserved(), from)
        };
        grads([Some(gradient)])
    });
    out
}

/// An argument of an op on autocast's lower-precision list. The copy of a float32 leaf that wants a gradient is made once a
/// region (`cached_cast` in `autocast_mode.cpp`): of a weight that is trained, and of an activation that was made a leaf.
pub fn lower_precision(x: &Tensor) -> Tensor {
    let Some(dtype) = x.cx().autocast_dtype() else { return x.clone() };
    if !x.dtype().is_float() || x.dtype() == dtype {
        return x.clone();
    }
    let cx = x.cx();
    let cast = || if cx.is_parameter(x) { cx.counting_as(Kind::AutocastCopy, || to(x, dtype)) } else { to(x, dtype) };
    // Only what is trained is cached, and only the weight itself: a frozen one, or a view, is cast again at every use.
    if x.dtype() != DType::Float32 || !x.requires_grad() || !x.is_leaf() {
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

#[cfg(test)]
mod tests {
    use super::{to, to_row_major};
    use crate::ops;
    use crate::tensor::testing::{activation, backward_of, forward, gradient, input, seen, watch};
    use crate::tensor::{DType, Geometry};

    #[test]
    fn a_cast_to_the_same_dtype_is_the_tensor_itself() {
        let cx = forward();
        let x = input(&cx, &[8]);
        let (events, same) = watch(&cx, || to(&x, DType::Float32));
        assert!(events.is_empty());
        assert_eq!(same.storage_id(), x.storage_id());
    }

    /// `ToCopyBackward0` keeps no tensor, only the dtype to cast the gradient back to.
    #[test]
    fn a_cast_keeps_nothing_and_casts_the_gradient_back() {
        let cx = forward();
        let x = activation(&cx, &[8]);
        let half = to(&ops::neg(&x), DType::BFloat16);
        assert_eq!(
            seen(&cx, 1),
            ["+neg [8] float32", "+_to_copy [8] bfloat16", "-neg [8] float32"],
            "the float32 original goes"
        );
        let events = backward_of(half);
        assert!(events.contains(&"+_to_copy [8] float32".to_owned()), "{events:?}");
        assert_eq!(gradient(&x).unwrap().dtype(), DType::Float32);
    }

    /// Of another dtype it is a row-major copy, of its own what it was.
    #[test]
    fn a_row_major_cast_leaves_what_has_that_dtype_as_it_lies() {
        let cx = forward();
        let x = input(&cx, &[4, 8]).view_as(Geometry::contiguous(&[4, 8]).transposed(0, 1));
        let (events, same) = watch(&cx, || to_row_major(&x, DType::Float32));
        assert!(events.is_empty() && same.geometry().strides() == x.geometry().strides());
        assert!(to_row_major(&x, DType::BFloat16).geometry().is_contiguous());
    }

    /// What a triangular system left column by column, its heads turned behind its tokens, lies channels last: `to_will_alias` says no.
    #[test]
    fn what_lies_channels_last_is_copied_though_it_has_the_dtype() {
        let cx = forward();
        let x = activation(&cx, &[2, 3, 8, 64]);
        let columns = ops::neg(&x).view_as(Geometry::contiguous(&[2, 3, 8, 64]).transposed(-1, -2).transposed(1, 2));
        let (events, copy) = watch(&cx, || to_row_major(&columns, DType::Float32));
        assert_eq!(events, ["+_to_copy [2, 64, 3, 8] float32"]);
        assert!(copy.geometry().is_contiguous());
    }

    /// `_to_copy` preserves strides (`MemoryFormat::Preserve`), so a later `contiguous()` still costs what it did.
    #[test]
    fn a_cast_keeps_the_memory_order() {
        let cx = forward();
        let x = input(&cx, &[4, 8]).view_as(Geometry::contiguous(&[4, 8]).transposed(0, 1));
        assert_eq!(to(&x, DType::Float16).geometry().strides(), x.geometry().strides());
    }
}
