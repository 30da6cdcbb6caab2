//! Reductions.

use std::rc::Rc;

use plimsoll_catalog::software::rules;

use super::cast::full_precision;
use super::inside;
use super::plain::{Reduction, reduction};
use crate::tensor::{Context, DType, Geometry, Saved, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// What a mean keeps of `x` beside its sizes: before [`rules::MEAN_KEEPS_SIZES`] all of it, which its backward has no use for.
pub(super) fn kept_by_mean(tape: &Tape, x: &Tensor) -> Saved {
    tape.save_if(!x.cx().machine().rules.has(&rules::MEAN_KEEPS_SIZES), x)
}

/// `x.mean(-1, keepdim=True)`.
pub fn mean_last(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::MeanBackward1, &[x]);
    let kept = kept_by_mean(&tape, x);
    let mut sizes = x.dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = 1;
    }
    let mut out = x.cx().launch(Op::MeanDim, &[x]).make_sizes(&sizes, x.dtype());
    drop(inside::sum_to(x.cx(), Op::MeanDim, x.geometry(), &sizes, x.dtype()));
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        drop(kept.get());
        // sum_backward expands the gradient; the division makes it real.
        let expanded = g.grad().geometry().expanded(from.dims());
        grads([Some(g.make(Op::DivScalar, &[g.grad()], Geometry::elementwise(&[&expanded]), g.grad().dtype()))])
    });
    out
}

/// `x.norm()` of `numel` numbers of this type, of what takes no gradient.
pub fn norm(cx: &Rc<Context>, numel: u64, dtype: DType) -> Tensor {
    let read = numel.saturating_mul(dtype.size());
    let out = cx.launch(Op::LinalgVectorNorm, &[]).reads(read).of(dtype).make_sizes(&[], dtype);
    drop(inside::sum(cx, Op::LinalgVectorNorm, &Geometry::contiguous(&[numel]), |_| true, dtype));
    out
}

/// `x.mean(axis)`, the dimension dropped.
pub fn mean(x: &Tensor, axis: isize) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::MeanBackward1, &[x]);
    let kept = kept_by_mean(&tape, x);
    let at = x.geometry().axis(axis);
    let mut sizes = x.dims().to_vec();
    sizes.remove(at);
    let mut out = x.cx().launch(Op::MeanDim, &[x]).make_sizes(&sizes, x.dtype());
    drop(inside::sum(x.cx(), Op::MeanDim, x.geometry(), |i| i == at, x.dtype()));
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        drop(kept.get());
        let expanded = g.grad().geometry().unsqueezed(at as isize).expanded(from.dims());
        grads([Some(g.make(Op::DivScalar, &[g.grad()], Geometry::elementwise(&[&expanded]), g.grad().dtype()))])
    });
    out
}

/// `x.mean([-2, -1])` of `[N, C, H, W]`, both dropped.
pub fn mean_image(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::MeanBackward1, &[x]);
    let kept = kept_by_mean(&tape, x);
    let mut out = x.cx().launch(Op::MeanDim, &[x]).make_sizes(&[x.size(0), x.size(1)], x.dtype());
    drop(inside::sum(x.cx(), Op::MeanDim, x.geometry(), |i| i > 1, x.dtype()));
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        drop(kept.get());
        let expanded = g.grad().geometry().unsqueezed(-1).unsqueezed(-1).expanded(from.dims());
        grads([Some(g.make(Op::DivScalar, &[g.grad()], Geometry::elementwise(&[&expanded]), g.grad().dtype()))])
    });
    out
}

/// `x.sum()`; its gradient is a view.
pub fn sum_all(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::SumBackward0, &[x]);
    let mut out = reduction(Reduction::Sum, x, &[], x.dtype());
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| grads([Some(g.grad().view_as(g.grad().geometry().expanded(from.dims())))]));
    out
}

/// `x.cumsum(-1)`: float32 under autocast; keeps nothing. Its backward sums from the other end.
pub fn cumsum_last(x: &Tensor) -> Tensor {
    let x = full_precision(x);
    let tape = Tape::new(x.cx(), GradFn::CumsumBackward0, &[&x]);
    let mut out = running_sum(&x);
    tape.record([&mut out], move |g| {
        // cumsum_backward: grad.flip(dim).cumsum(dim).flip(dim)
        if g.grad().size(-1) <= 1 {
            return grads([Some(g.grad().clone())]);
        }
        let turned = g.like(Op::Flip, g.grad(), &[]);
        let summed = running_sum(&turned);
        grads([Some(g.like(Op::Flip, &summed, &[]))])
    });
    out
}

/// The kernel of `cumsum`, which reads a row-major copy of what lies otherwise (`scan_dim` in `ScanUtils.cuh`).
fn running_sum(x: &Tensor) -> Tensor {
    let out = x.cx().launch(Op::Cumsum, &[x]).make_sizes(x.dims(), x.dtype());
    let copy = inside::Scratch::contiguous(x.cx(), Op::Cumsum, x.geometry(), x.dtype());
    inside::Scratch::running_sum(x.cx(), Op::Cumsum, (x.numel(), x.size(-1)), x.dtype().size());
    drop(copy);
    out
}

#[cfg(test)]
mod tests {
    use plimsoll_catalog::software::{Rules, Software, Version};

    use super::{cumsum_last, mean, mean_image, mean_last};
    use crate::ops::neg;
    use crate::tensor::testing::{activation, alive, backward_of, forward, made};
    use crate::tensor::{Kind, Machine};

    /// `mean_backward` expands the gradient (a view) and divides it (a whole new buffer); nothing is kept.
    #[test]
    fn mean_keeps_nothing_and_its_gradient_is_full_size() {
        let cx = forward();
        let out = mean_last(&neg(&activation(&cx, &[4, 8])));
        assert_eq!(out.dims(), [4, 1]);
        assert!(alive(&cx, Kind::Saved).is_empty());
        let events = backward_of(out);
        assert!(events.contains(&"+div.Scalar [4, 8] float32".to_owned()), "{events:?}");
    }

    /// `MeanBackward1._saved_self` of PyTorch 2.1.
    #[test]
    fn a_mean_kept_what_it_was_given() {
        let cx = forward();
        let software = Software { torch: Version::new(2, 1), ..Software::default() };
        cx.set_machine(Machine { rules: Rules::of(&software), ..Machine::default() });
        let out = mean_last(&neg(&activation(&cx, &[4, 8])));
        assert_eq!(alive(&cx, Kind::Saved), ["neg [4, 8] float32"]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "div.Scalar", "neg"]);
    }

    /// `cumsum_backward`: `grad.flip(dim).cumsum(dim).flip(dim)`; nothing is kept.
    #[test]
    fn a_running_sum_keeps_nothing_and_runs_back_from_the_other_end() {
        let cx = forward();
        let out = cumsum_last(&neg(&activation(&cx, &[4, 8])));
        assert_eq!(out.dims(), [4, 8]);
        assert!(alive(&cx, Kind::Saved).is_empty());
        assert_eq!(made(&backward_of(out)), ["ones_like", "flip", "cumsum", "flip", "neg"]);
    }

    #[test]
    fn a_mean_over_an_image_drops_both_sides() {
        let cx = forward();
        let out = mean_image(&neg(&activation(&cx, &[4, 8, 3, 3])));
        assert_eq!(out.dims(), [4, 8]);
        let events = backward_of(out);
        assert!(events.contains(&"+div.Scalar [4, 8, 3, 3] float32".to_owned()), "{events:?}");
    }

    #[test]
    fn a_mean_over_the_first_dimension_drops_it() {
        let cx = forward();
        let out = mean(&neg(&activation(&cx, &[4, 8])), 0);
        assert_eq!(out.dims(), [8]);
        let events = backward_of(out);
        assert!(events.contains(&"+div.Scalar [4, 8] float32".to_owned()), "{events:?}");
    }
}
