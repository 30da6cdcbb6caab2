//! Padding with zeros.

use crate::tensor::{Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `F.pad(x, ...)` with zeros, to `sizes`: a copy, even where nothing is added (`constant_pad_nd` clones then). Its
/// backward cuts the padding off, a copy again.
pub fn pad(x: &Tensor, sizes: &[u64]) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::ConstantPadNdBackward0, &[x]);
    let geometry = if x.dims() == sizes { x.geometry().preserved() } else { Geometry::contiguous(sizes) };
    let mut out = x.cx().launch(Op::ConstantPadNd, &[x]).make(geometry, x.dtype());
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        let mut cut = g.grad().geometry().clone();
        for (axis, &size) in (0..).zip(from.dims()) {
            cut = cut.narrowed(axis, size);
        }
        let kept = cut.preserved();
        let read = kept.numel().saturating_mul(g.grad().dtype().size());
        grads([Some(g.cx().launch(Op::ConstantPadNd, &[]).reads(read).make(kept, g.grad().dtype()))])
    });
    out
}

/// The last dimension padded to `size`.
pub(super) fn pad_last(x: &Tensor, size: u64) -> Tensor {
    let mut sizes = x.dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = size;
    }
    pad(x, &sizes)
}

#[cfg(test)]
mod tests {
    use super::pad;
    use crate::ops::neg;
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward, watch};

    #[test]
    fn padding_copies_there_and_back_and_keeps_nothing() {
        let cx = forward();
        let x = neg(&activation(&cx, &[2, 3, 8]));
        let (events, out) = watch(&cx, || pad(&x, &[2, 4, 8]));
        assert_eq!(events, ["+constant_pad_nd [2, 4, 8] float32"]);
        drop(x);
        assert!(alive(&cx, Kind::Saved).is_empty());
        assert!(backward_of(out).contains(&"+constant_pad_nd [2, 3, 8] float32".to_owned()));
    }

    /// `constant_pad_nd` of nothing clones (`aten/src/ATen/native/PadNd.cpp`).
    #[test]
    fn padding_by_nothing_is_a_copy_all_the_same() {
        let cx = forward();
        let x = activation(&cx, &[2, 8]);
        let (events, _out) = watch(&cx, || pad(&x, &[2, 8]));
        assert_eq!(events, ["+constant_pad_nd [2, 8] float32"]);
    }
}
