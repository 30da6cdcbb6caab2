//! What a boolean mask selects. How much that is no sizes say: where it is executed, all of it, as the labels of a batch all count.

use super::inside::{self, Rows, Scratch};
use super::plain::{Reduction, reduction};
use super::select::{picked, put_back};
use super::told::Given;
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// The place of each element that `mask` selects: `nonzero`, whose columns are the indices.
fn places(mask: &Tensor) -> Tensor {
    reduction(Reduction::Nonzero, mask, &[mask.numel(), mask.dims().len() as u64], DType::Int64)
}

/// `x[mask]`: keeps the mask; backward adds into zeros of the whole, looking the places up once more.
pub fn select_masked(x: &Tensor, mask: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::IndexBackward0, &[x]);
    let saved = tape.save(mask);
    let rank = mask.dims().len();
    let mut sizes = vec![mask.numel()];
    sizes.extend_from_slice(&x.dims()[rank..]);
    let mut out = {
        let places = places(mask);
        picked(x, &sizes, &[&places])
    };
    let whole = Geometry::contiguous(x.dims());
    tape.record([&mut out], move |g| {
        let mask = saved.unpack();
        let gradient = g.make(Op::NewZeros, &[], whole.clone(), g.grad().dtype());
        let values = (g.grad().geometry(), g.grad().dtype());
        let rows = Rows { count: mask.numel(), dimensions: rank, mask: Some((mask.geometry(), mask.dtype())) };
        drop(inside::accumulate_rows(g.cx(), Op::IndexPut, rows, (&whole, false), values));
        put_back(g, &[&mask]);
        grads([Some(gradient)])
    });
    out
}

/// `x.new_zeros(mask.shape).masked_scatter(mask, x)`: keeps the mask; backward selects.
pub fn scatter_masked(x: &Tensor, mask: &Tensor) -> Tensor {
    let cx = x.cx();
    let zeros = cx.launch(Op::NewZeros, &[]).make_sizes(mask.dims(), x.dtype());
    let tape = Tape::new(cx, GradFn::MaskedScatterBackward0, &[x]);
    let saved = tape.save(mask);
    let mut out = cx.launch(Op::Clone, &[&zeros]).make_sizes(mask.dims(), x.dtype());
    let given = |tensor: &Tensor| Given { geometry: tensor.geometry().clone(), dtype: tensor.dtype() };
    drop(Scratch::scattered(cx, mask.dims(), [&given(mask), &given(x)]));
    cx.in_place(Op::MaskedScatterInPlace, &out, &[mask, x]);
    drop(zeros);
    tape.record([&mut out], move |g| {
        // masked_scatter_backward: grad.masked_select(mask), and nothing to fill up where all are selected.
        let mask = saved.unpack();
        let places = places(&mask);
        let selected =
            g.make(Op::MaskedSelect, &[g.grad(), &places], Geometry::contiguous(&[mask.numel()]), g.grad().dtype());
        drop(places);
        grads([Some(selected)])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{scatter_masked, select_masked};
    use crate::ops::neg;
    use crate::tensor::testing::{activation, alive, backward_of, forward, input_of, made};
    use crate::tensor::{DType, Kind};

    #[test]
    fn a_mask_is_kept_and_its_gradient_is_as_large_as_what_it_selects_from() {
        let cx = forward();
        let (x, mask) = (neg(&activation(&cx, &[2, 3, 4])), input_of(&cx, &[2, 3], DType::Bool));
        let out = select_masked(&x, &mask);
        assert_eq!(out.dims(), [6, 4]);
        drop((x, mask));
        assert_eq!(alive(&cx, Kind::Input).len(), 1, "the mask alone");
        assert_eq!(made(&backward_of(out)), ["ones_like", "new_zeros", "neg"]);
    }

    #[test]
    fn what_is_scattered_is_selected_again() {
        let cx = forward();
        let (x, mask) = (neg(&activation(&cx, &[6])), input_of(&cx, &[2, 3], DType::Bool));
        let out = scatter_masked(&x, &mask);
        assert_eq!(out.dims(), [2, 3]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "nonzero", "masked_select", "neg"]);
    }
}
