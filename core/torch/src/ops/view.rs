//! Views, and the ops that copy when a view is not possible.

use plimsoll_catalog::software::rules;

use super::conv::{image, is_channels_last};
use super::inside;
use crate::tensor::{Geometry, Gradients, Grads, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// The order that takes `[N, C, H, W]` to `[N, H, W, C]`.
pub const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];
/// The order that takes `[N, H, W, C]` to `[N, C, H, W]`.
pub const CHANNELS_FIRST: [usize; 4] = [0, 3, 1, 2];

/// Records a view whose backward is `restore`, itself a view (or a copy) of the gradient.
fn record_view(
    grad_fn: GradFn,
    x: &Tensor,
    geometry: Geometry,
    restore: impl Fn(&Gradients<'_>) -> Tensor + 'static,
) -> Tensor {
    let tape = Tape::new(x.cx(), grad_fn, &[x]);
    let mut out = x.view_as(geometry);
    tape.record([&mut out], move |g| grads([Some(restore(g))]));
    out
}

/// `grad.reshape(sizes)`: a view where the strides allow, else a contiguous copy.
pub(super) fn reshape_gradient(g: &Gradients<'_>, sizes: &Geometry) -> Tensor {
    let grad = g.grad();
    match grad.geometry().viewed(sizes.dims()) {
        Some(geometry) => grad.view_as(geometry),
        None => {
            let copy = g.make(Op::Clone, &[grad], Geometry::contiguous(grad.dims()), grad.dtype());
            copy.unsafe_view_as(Geometry::contiguous(sizes.dims()))
        }
    }
}

/// `x.view(sizes)`.
///
/// # Panics
/// When the strides do not allow it, as PyTorch raises; models only call it where they do.
pub fn view(x: &Tensor, sizes: &[u64]) -> Tensor {
    match x.geometry().viewed(sizes) {
        Some(geometry) => {
            let from = x.geometry().clone();
            record_view(GradFn::ViewBackward0, x, geometry, move |g| reshape_gradient(g, &from))
        }
        None => unreachable!("view of {:?} as {sizes:?} needs a copy", x.geometry()),
    }
}

/// `x.reshape(sizes)`: a view where possible, else `clone` and `_unsafe_view`.
pub fn reshape(x: &Tensor, sizes: &[u64]) -> Tensor {
    if x.geometry().viewed(sizes).is_some() { view(x, sizes) } else { unsafe_view(&clone(x), sizes) }
}

/// `_unsafe_view` of a contiguous temporary.
pub(super) fn unsafe_view(x: &Tensor, sizes: &[u64]) -> Tensor {
    let from = x.geometry().clone();
    let tape = Tape::new(x.cx(), GradFn::UnsafeViewBackward0, &[x]);
    let mut out = x.unsafe_view_as(Geometry::contiguous(sizes));
    tape.record([&mut out], move |g| grads([Some(reshape_gradient(g, &from))]));
    out
}

/// `x.clone(memory_format=torch.contiguous_format)`.
pub fn clone(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::CloneBackward0, &[x]);
    let mut out = x.cx().launch(Op::Clone, &[x]).make_sizes(x.dims(), x.dtype());
    tape.record([&mut out], |g| grads([Some(g.grad().clone())]));
    out
}

/// `x.contiguous()`.
pub fn contiguous(x: &Tensor) -> Tensor {
    if x.geometry().is_contiguous() { x.clone() } else { clone(x) }
}

/// `x.transpose(a, b)`.
pub fn transpose(x: &Tensor, a: isize, b: isize) -> Tensor {
    record_view(GradFn::TransposeBackward0, x, x.geometry().transposed(a, b), move |g| {
        g.grad().view_as(g.grad().geometry().transposed(a, b))
    })
}

/// `x.permute(order)`.
pub fn permute(x: &Tensor, order: &[usize]) -> Tensor {
    let mut inverse = vec![0; order.len()];
    for (to, &from) in order.iter().enumerate() {
        inverse[from] = to;
    }
    record_view(GradFn::PermuteBackward0, x, x.geometry().permuted(order), move |g| {
        g.grad().view_as(g.grad().geometry().permuted(&inverse))
    })
}

/// `x.unsqueeze(at)`.
pub fn unsqueeze(x: &Tensor, at: isize) -> Tensor {
    record_view(GradFn::UnsqueezeBackward0, x, x.geometry().unsqueezed(at), move |g| {
        g.grad().view_as(g.grad().geometry().squeezed(at))
    })
}

/// `x.expand(sizes)`; its gradient is summed back.
pub fn expand(x: &Tensor, sizes: &[u64]) -> Tensor {
    let from = x.geometry().clone();
    record_view(GradFn::ExpandBackward0, x, x.geometry().expanded(sizes), move |g| {
        if g.grad().dims() == from.dims() {
            return g.grad().clone();
        }
        sum_to(g, &from)
    })
}

/// `at::sum_to` inside a formula.
fn sum_to(g: &Gradients<'_>, sizes: &Geometry) -> Tensor {
    let grad = g.grad();
    let lead = grad.geometry().rank() - sizes.rank();
    let mut kept: smallvec::SmallVec<[u64; 6]> = smallvec::SmallVec::from_elem(1, lead);
    kept.extend_from_slice(sizes.dims());
    let summed = g.make(Op::SumDimIntList, &[grad], Geometry::contiguous(&kept), g.cx().summed(grad.dtype()));
    drop(inside::sum_to(g.cx(), Op::SumDimIntList, grad.geometry(), &kept, grad.dtype()));
    if lead == 0 { summed } else { summed.view_as(Geometry::contiguous(sizes.dims())) }
}

/// `x.narrow(axis, _, length)`, or `x[..., a:b]`: where it starts does not bear on what is allocated. See [`narrow_from`].
pub fn narrow(x: &Tensor, axis: isize, length: u64) -> Tensor {
    if x.size(axis) == length {
        return x.clone();
    }
    let from = x.geometry().clone();
    record_view(GradFn::SliceBackward0, x, x.geometry().narrowed(axis, length), move |g| {
        g.make(Op::SliceBackward, &[g.grad()], Geometry::contiguous(from.dims()), g.grad().dtype())
    })
}

/// `x[..., :length]`: an alias where that is all, which has a node of its own (`at::alias` in `python_variable_indexing.cpp`): backward comes
/// to it in its turn.
pub fn first_of_last(x: &Tensor, length: u64) -> Tensor {
    if x.size(-1) == length {
        return record_view(GradFn::AliasBackward0, x, x.geometry().clone(), |g| g.grad().clone());
    }
    narrow(x, -1, length)
}

/// As [`narrow`], of what is saved for backward: who keeps that elsewhere asks where it starts.
pub fn narrow_from(x: &Tensor, axis: isize, start: u64, length: u64) -> Tensor {
    let before = start.saturating_mul(x.geometry().strides()[x.geometry().axis(axis)]);
    narrow(x, axis, length).beginning(before)
}

/// `x.select(axis, i)`, or `x[:, i]`: which one does not bear on memory.
pub fn select(x: &Tensor, axis: isize) -> Tensor {
    let from = x.geometry().clone();
    record_view(GradFn::SelectBackward0, x, x.geometry().narrowed(axis, 1).squeezed(axis), move |g| {
        g.make(Op::SelectBackward, &[g.grad()], Geometry::contiguous(from.dims()), g.grad().dtype())
    })
}

/// As [`select`], of this index: see [`narrow_from`].
pub fn select_at(x: &Tensor, axis: isize, index: u64) -> Tensor {
    let before = index.saturating_mul(x.geometry().strides()[x.geometry().axis(axis)]);
    select(x, axis).beginning(before)
}

/// A `:` beside another index, `x[..., a:b, :]` or `x[:, 0]`: a node of its own before [`rules::WHOLE_SLICES_LEFT_OUT`].
pub fn whole(x: &Tensor) -> Tensor {
    if x.cx().machine().rules.has(&rules::WHOLE_SLICES_LEFT_OUT) { x.clone() } else { sliced(x) }
}

/// `x[-n:]` where there are `n`: a node of its own, though nothing is cut.
pub fn sliced(x: &Tensor) -> Tensor {
    let from = x.geometry().clone();
    record_view(GradFn::SliceBackward0, x, from.clone(), move |g| {
        g.make(Op::SliceBackward, &[g.grad()], Geometry::contiguous(from.dims()), g.grad().dtype())
    })
}

/// `x[:, 0]`, or another one of the second dimension.
pub fn first(x: &Tensor) -> Tensor {
    select(&whole(x), 1)
}

/// `x.split(size, axis)`; the gradients are concatenated, zeros standing in for those that never came.
pub fn split(x: &Tensor, size: u64, axis: isize) -> Vec<Tensor> {
    let whole = x.size(axis);
    let sizes: Vec<u64> = (0..whole.div_ceil(size)).map(|i| size.min(whole - i * size)).collect();
    split_as(GradFn::SplitBackward0, x, &sizes, axis)
}

/// `torch.split(x, [first, second], dim=-1)`; as [`split`].
pub fn split_in_two(x: &Tensor, first: u64) -> (Tensor, Tensor) {
    let parts = split_as(GradFn::SplitWithSizesBackward0, x, &[first, x.size(-1) - first], -1);
    (parts[0].clone(), parts[1].clone())
}

/// `torch.split(x, [a, b, ...], axis)`; as [`split`].
pub fn split_sizes(x: &Tensor, sizes: &[u64], axis: isize) -> Vec<Tensor> {
    split_as(GradFn::SplitWithSizesBackward0, x, sizes, axis)
}

fn split_as(grad_fn: GradFn, x: &Tensor, sizes: &[u64], axis: isize) -> Vec<Tensor> {
    let tape = Tape::new(x.cx(), grad_fn, &[x]);
    let stride = x.geometry().strides()[x.geometry().axis(axis)];
    let starts = sizes.iter().scan(0u64, |next, size| Some(std::mem::replace(next, next.saturating_add(*size))));
    let part = |(size, start): (&u64, u64)| {
        x.view_as(x.geometry().narrowed(axis, *size)).beginning(start.saturating_mul(stride))
    };
    let mut outputs: Vec<Tensor> = sizes.iter().zip(starts).map(part).collect();
    let from = x.geometry().clone();
    let parts: Vec<Vec<u64>> = outputs.iter().map(|part| part.dims().to_vec()).collect();
    tape.record(outputs.iter_mut(), move |g| {
        let dtype = g.grad().dtype();
        let zeros: Vec<Tensor> = (parts.iter().enumerate())
            .filter(|(i, _)| g.get(*i).is_none())
            .map(|(_, part)| g.make(Op::Zeros, &[], Geometry::contiguous(part), dtype))
            .collect();
        // `compute_output_memory_format` of `Shape.cpp`: where all of them lie channels last, so does what they make.
        let last = (0..parts.len()).all(|i| g.get(i).is_some_and(|part| is_channels_last(part.geometry())));
        let sizes = from.dims();
        let geometry = match *sizes {
            [n, c, h, w] if last => image([n, c, h, w], true),
            _ => Geometry::contiguous(sizes),
        };
        let whole = g.gathered(Op::Cat, &zeros, geometry);
        drop(zeros);
        grads([Some(whole)])
    });
    outputs
}

/// `torch.cat(tensors, axis)`, in the widest dtype, which its kernel casts to as it goes.
pub fn cat(tensors: &[&Tensor], axis: isize) -> Tensor {
    let first = tensors[0];
    let dtype = tensors.iter().fold(first.dtype(), |d, t| d.promote(t.dtype()));
    let tape = Tape::new(first.cx(), GradFn::CatBackward0, tensors);
    let mut dims = first.dims().to_vec();
    dims[first.geometry().axis(axis)] = tensors.iter().map(|t| t.size(axis)).sum();
    let mut out = first.cx().launch(Op::Cat, tensors).of(dtype).make_sizes(&dims, dtype);
    let lengths: Vec<u64> = tensors.iter().map(|t| t.size(axis)).collect();
    tape.record([&mut out], move |g| -> Grads {
        let grad = g.grad();
        lengths
            .iter()
            .enumerate()
            .map(|(i, &n)| g.needs(i).then(|| grad.view_as(grad.geometry().narrowed(axis, n))))
            .collect()
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{neg, tanh};
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward, gradient, input, made, watch, weight};

    #[test]
    fn views_allocate_nothing_in_either_direction() {
        let cx = forward();
        let x = activation(&cx, &[4, 8]);
        let y = tanh(&x);
        let (events, out) = watch(&cx, || transpose(&unsqueeze(&view(&y, &[2, 2, 8]), 0), 1, 2));
        assert!(events.is_empty());
        assert_eq!(out.dims(), [1, 2, 2, 8]);
        assert_eq!(made(&backward_of(out)), ["ones_like", "tanh_backward"]);
    }

    /// `reshape` views where `computeStride` allows, else clones (`aten/src/ATen/native/TensorShape.cpp`).
    #[test]
    fn reshape_copies_only_what_cannot_be_viewed() {
        let cx = forward();
        let x = input(&cx, &[2, 3, 4]);
        let (events, _) = watch(&cx, || reshape(&x, &[6, 4]));
        assert!(events.is_empty());
        let (events, out) = watch(&cx, || reshape(&transpose(&x, 0, 1), &[6, 4]));
        assert_eq!(events, ["+clone [3, 2, 4] float32"]);
        assert_eq!(out.dims(), [6, 4]);
    }

    /// The backward of a view reshapes the gradient, which copies when the gradient lies in another order.
    #[test]
    fn a_gradient_in_another_order_is_copied_by_the_views_backward() {
        let cx = forward();
        let x = activation(&cx, &[6, 4]);
        let turned = transpose(&view(&tanh(&x), &[2, 3, 4]), 0, 1);
        // silu's gradient takes the order of its operands, that of the transposed view: [2, 3, 4] again.
        let same_order = backward_of(crate::ops::silu(&turned));
        assert_eq!(made(&same_order), ["ones_like", "silu_backward", "tanh_backward"]);

        let x = activation(&cx, &[6, 4]);
        let turned = clone(&transpose(&view(&tanh(&x), &[2, 3, 4]), 0, 1));
        // clone's gradient is contiguous as [3, 2, 4]: viewed as [6, 4] it must be copied.
        let other_order = backward_of(crate::ops::silu(&turned));
        assert_eq!(made(&other_order), ["ones_like", "silu_backward", "clone", "tanh_backward"]);
    }

    #[test]
    fn contiguous_of_a_contiguous_tensor_is_itself() {
        let cx = forward();
        let x = input(&cx, &[2, 3]);
        let (events, same) = watch(&cx, || contiguous(&x));
        assert!(events.is_empty() && same.storage_id() == x.storage_id());
        let (events, _) = watch(&cx, || contiguous(&transpose(&x, 0, 1)));
        assert_eq!(events[..1], ["+clone [3, 2] float32"]);
    }

    /// `expand` allocates nothing; its backward sums (`at::sum_to`).
    #[test]
    fn an_expanded_dimension_is_summed_in_backward() {
        let cx = forward();
        let x = weight(&cx, &[2, 1, 4]);
        let (events, wide) = watch(&cx, || expand(&x, &[2, 3, 4]));
        assert!(events.is_empty());
        assert_eq!(made(&backward_of(tanh(&wide))), ["ones_like", "tanh_backward", "sum.dim_IntList"]);
        assert_eq!(gradient(&x).unwrap().dims(), [2, 1, 4]);
    }

    /// `slice_backward` makes a whole tensor of zeros around the gradient; slicing everything is no op.
    #[test]
    fn the_gradient_of_a_slice_is_as_large_as_the_whole() {
        let cx = forward();
        let x = activation(&cx, &[4, 8]);
        let events = backward_of(narrow(&tanh(&x), 1, 2));
        assert!(events.contains(&"+slice_backward [4, 8] float32".to_owned()), "{events:?}");
        let (events, whole) = watch(&cx, || narrow(&x, 1, 8));
        assert!(events.is_empty() && whole.storage_id() == x.storage_id());
    }

    /// `x[..., :8]` of eight: the alias's backward makes nothing.
    #[test]
    fn a_slice_that_cuts_nothing_is_an_alias() {
        let cx = forward();
        let events = backward_of(first_of_last(&neg(&activation(&cx, &[4, 8])), 8));
        assert_eq!(made(&events), ["ones_like", "neg"]);
        let events = backward_of(first_of_last(&neg(&activation(&cx, &[4, 8])), 4));
        assert!(made(&events).contains(&"slice_backward"), "{events:?}");
    }

    /// `select_backward` likewise, even where there is only one to select.
    #[test]
    fn the_gradient_of_a_selection_is_as_large_as_the_whole() {
        let cx = forward();
        let x = activation(&cx, &[4, 1, 8]);
        let out = select(&tanh(&x), 1);
        assert_eq!(out.dims(), [4, 8]);
        let events = backward_of(out);
        assert!(events.contains(&"+select_backward [4, 1, 8] float32".to_owned()), "{events:?}");
    }

    #[test]
    fn permute_is_undone_in_backward() {
        let cx = forward();
        let x = activation(&cx, &[2, 3, 4]);
        let out = permute(&tanh(&x), &[2, 0, 1]);
        assert_eq!((out.dims(), out.geometry().strides()), (&[4, 2, 3][..], &[1, 12, 4][..]));
        assert_eq!(made(&backward_of(out)), ["ones_like", "tanh_backward"]);
        assert_eq!(gradient(&x).unwrap().geometry().strides(), x.geometry().strides());
    }

    /// `split_backward` concatenates; parts whose gradient never came are zeros in between.
    #[test]
    fn split_gradients_are_put_together() {
        let cx = forward();
        let x = activation(&cx, &[2, 6]);
        let parts = split(&tanh(&x), 2, 1);
        assert_eq!(parts.iter().map(|p| p.dims().to_vec()).collect::<Vec<_>>(), vec![vec![2, 2]; 3]);
        let sum = crate::ops::add(&crate::ops::add(&parts[0], &parts[1]), &parts[2]);
        drop(parts);
        assert_eq!(made(&backward_of(sum)), ["ones_like", "cat", "tanh_backward"]);
    }

    #[test]
    fn an_uneven_split_ends_in_a_smaller_part() {
        let cx = forward();
        let parts = split(&input(&cx, &[5, 2]), 2, 0);
        assert_eq!(parts.iter().map(|p| p.size(0)).collect::<Vec<_>>(), [2, 2, 1]);
    }

    /// `compute_output_memory_format` in `Shape.cpp`: gradients of parts that all lie channels last are put together so.
    #[test]
    fn gradients_that_lie_channels_last_are_put_together_so() {
        let cx = forward();
        let whole = view(&tanh(&activation(&cx, &[2, 60])), &[2, 5, 3, 4]);
        let parts = split_sizes(&whole, &[2, 2], 3);
        let turned = |part: &Tensor| clone(&permute(part, &[0, 2, 3, 1]));
        let out = crate::ops::add(&turned(&parts[0]), &turned(&parts[1]));
        drop((whole, parts));
        // Rows of 60 are no view of that.
        assert_eq!(made(&backward_of(out)), ["ones_like", "cat", "clone", "tanh_backward"]);
    }

    /// `cat` keeps nothing; its gradients are views (`narrow`) of the one that arrives.
    #[test]
    fn cat_gradients_are_views() {
        let cx = forward();
        let (a, b) = (activation(&cx, &[2, 4]), activation(&cx, &[2, 6]));
        let out = cat(&[&tanh(&a), &neg(&b)], -1);
        assert_eq!(out.dims(), [2, 10]);
        assert_eq!(alive(&cx, Kind::Saved), ["tanh [2, 4] float32"], "tanh's own");
        assert_eq!(made(&backward_of(out)), ["ones_like", "neg", "tanh_backward"]);
    }
}
