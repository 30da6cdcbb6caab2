//! What is put together by copying into parts of it.

use crate::tensor::{DType, Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `out = x.new_empty(...)`, then `out[..., a:b].copy_(part)` for each of `parts`, side by side along the last axis and
/// alike in all others. Autograd takes each copy for a change of the whole (`CopySlices::apply` in `custom_function.h`):
/// on the way back it copies the whole gradient, copies the part out of it, and fills zeros in its place if anything
/// stood there before that wants a gradient.
pub fn filled(dtype: DType, parts: &[&Tensor]) -> Tensor {
    let cx = parts[0].cx();
    let mut sizes = parts[0].dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = parts.iter().map(|part| part.size(-1)).sum();
    }
    let mut whole = cx.empty_sizes(Op::NewEmpty, &sizes, dtype);
    for part in parts {
        let tape = Tape::new(cx, GradFn::CopySlices, &[&whole, part]);
        cx.in_place(Op::CopyInPlace, &whole, &[part]);
        let mut next = whole.detach();
        drop(whole);
        let (from, slice, source) = (next.geometry().clone(), Geometry::contiguous(part.dims()), part.dtype());
        tape.record([&mut next], move |g| {
            let result = g.make(Op::NewEmptyStrided, &[], Geometry::contiguous(from.dims()), dtype);
            g.cx().in_place(Op::CopyInPlace, &result, &[g.grad()]);
            let copy = g.make(Op::Clone, &[&result], slice.clone(), dtype);
            let before = g.needs(0).then(|| g.make(Op::ZerosLike, &[], slice.clone(), dtype));
            let own = g.needs(1).then(|| {
                if source == dtype { copy.clone() } else { g.make(Op::ToCopy, &[&copy], slice.clone(), source) }
            });
            let before = before.map(|zeros| {
                g.cx().in_place(Op::CopyInPlace, &copy, &[&zeros]);
                result.clone()
            });
            grads([before, own])
        });
        whole = next;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::filled;
    use crate::ops::neg;
    use crate::tensor::DType;
    use crate::tensor::testing::{activation, backward_of, forward, made, watch};

    /// Seen on a hollow card: the last part's way back copies the whole, its part, and makes zeros for what was there; the
    /// first part's finds nothing there.
    #[test]
    fn every_part_copies_the_whole_on_its_way_back() {
        let cx = forward();
        let (a, b) = (neg(&activation(&cx, &[4, 6])), neg(&activation(&cx, &[4, 2])));
        let (events, whole) = watch(&cx, || filled(DType::Float32, &[&a, &b]));
        assert_eq!(events, ["+new_empty [4, 8] float32"]);
        drop((a, b));
        let backward = backward_of(whole);
        let births = made(&backward);
        let expected =
            ["ones_like", "new_empty_strided", "clone", "zeros_like", "new_empty_strided", "clone", "neg", "neg"];
        assert_eq!(births, expected);
    }
}
