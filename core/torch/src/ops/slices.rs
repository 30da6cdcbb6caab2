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
        let slice = Geometry::contiguous(part.dims());
        whole = copied(whole, slice, part);
    }
    whole
}

/// `x[..., i, ...] = part`, one of the dimension `axis`: x under its name with what was copied into it, as [`filled`] has it.
pub fn copied_into(x: Tensor, axis: isize, part: &Tensor) -> Tensor {
    let slice = x.geometry().narrowed(axis, 1).squeezed(axis).preserved();
    copied(x, slice, part)
}

/// `x[..., i, :n] = part`, as [`copied_into`].
pub fn copied_into_row(x: Tensor, part: &Tensor) -> Tensor {
    let slice = x.geometry().narrowed(-2, 1).squeezed(-2).narrowed(-1, part.size(-1)).preserved();
    copied(x, slice, part)
}

/// What a copy of `part` into `whole` makes of it; the slice is as a clone of it lies in memory.
fn copied(whole: Tensor, slice: Geometry, part: &Tensor) -> Tensor {
    let (cx, dtype) = (whole.cx(), whole.dtype());
    let tape = Tape::new(cx, GradFn::CopySlices, &[&whole, part]);
    cx.in_place(Op::CopyInPlace, &whole, &[part]);
    let mut next = whole.detach();
    let (from, source) = (next.geometry().clone(), part.dtype());
    drop(whole);
    tape.record([&mut next], move |g| {
        let result = g.make(Op::NewEmptyStrided, &[], from.clone(), dtype);
        g.cx().in_place(Op::CopyInPlace, &result, &[g.grad()]);
        let copy = g.make(Op::Clone, &[&result], slice.clone(), dtype);
        let before = g.needs(0).then(|| g.make(Op::ZerosLike, &[], Geometry::contiguous(slice.dims()), dtype));
        let own = g
            .needs(1)
            .then(|| if source == dtype { copy.clone() } else { g.make(Op::ToCopy, &[&copy], slice.clone(), source) });
        let before = before.map(|zeros| {
            g.cx().in_place(Op::CopyInPlace, &copy, &[&zeros]);
            result.clone()
        });
        grads([before, own])
    });
    next
}

#[cfg(test)]
mod tests {
    use super::{copied_into, copied_into_row, filled};
    use crate::ops::{add, clone, mul, narrow, neg, select, sum_rows, unsqueeze};
    use crate::tensor::testing::{activation, alive, backward_of, forward, made, watch};
    use crate::tensor::{DType, Kind};

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

    /// Seen on a hollow card: of a slice in another dtype the gradient is cast, and a place that is taken later finds what stood
    /// there before.
    #[test]
    fn a_place_that_is_taken_copies_the_whole_on_its_way_back() {
        let cx = forward();
        let part = || neg(&activation(&cx, &[4, 6]));
        let (first, second) = (part(), part());
        let zeros = crate::ops::fill(&cx, crate::ops::Fill::Zeros, &[4, 2, 6], DType::Float32);
        let (events, out) = watch(&cx, || copied_into(copied_into(zeros, 1, &first), 1, &second));
        assert!(events.is_empty(), "{events:?}");
        drop((first, second));
        let events = backward_of(out);
        let expected =
            ["ones_like", "new_empty_strided", "clone", "zeros_like", "new_empty_strided", "clone", "neg", "neg"];
        assert_eq!(made(&events), expected);
    }

    /// What is solved row by row: every row's own and what it read stay until the last has gone back.
    #[test]
    fn rows_written_one_after_the_other_keep_what_they_read() {
        let cx = forward();
        let mut x = neg(&activation(&cx, &[2, 4, 4]));
        for i in 1..3 {
            let row = clone(&narrow(&select(&x, -2), -1, i));
            let sub = clone(&narrow(&narrow(&x, -2, i), -1, i));
            let product = mul(&unsqueeze(&row, -1), &sub);
            x = copied_into_row(x, &add(&row, &sum_rows(&product)));
        }
        let kept = alive(&cx, Kind::Saved);
        assert_eq!(
            kept,
            ["clone [2, 1] float32", "clone [2, 1, 1] float32", "clone [2, 2] float32", "clone [2, 2, 2] float32"]
        );
    }
}
