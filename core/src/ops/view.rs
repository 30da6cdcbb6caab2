//! Views, and the ops that copy when a view is not possible.

use crate::tensor::{Geometry, Gradients, Grads, Tape, Tensor, grads};

/// Records a view whose backward is `restore`, itself a view (or a copy) of the gradient.
fn record_view(
    name: &'static str,
    x: &Tensor,
    geometry: Geometry,
    restore: impl Fn(&Gradients<'_>) -> Tensor + 'static,
) -> Tensor {
    let tape = Tape::new(x.cx(), name, &[x]);
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
            let copy = g.empty("clone", Geometry::contiguous(grad.dims()), grad.dtype());
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
            record_view("ViewBackward0", x, geometry, move |g| reshape_gradient(g, &from))
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
    let tape = Tape::new(x.cx(), "UnsafeViewBackward0", &[x]);
    let mut out = x.unsafe_view_as(Geometry::contiguous(sizes));
    tape.record([&mut out], move |g| grads([Some(reshape_gradient(g, &from))]));
    out
}

/// `x.clone(memory_format=torch.contiguous_format)`.
pub fn clone(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), "CloneBackward0", &[x]);
    let mut out = x.cx().empty("clone", Geometry::contiguous(x.dims()), x.dtype());
    tape.record([&mut out], |g| grads([Some(g.grad().clone())]));
    out
}

/// `x.contiguous()`.
pub fn contiguous(x: &Tensor) -> Tensor {
    if x.geometry().is_contiguous() { x.clone() } else { clone(x) }
}

/// `x.transpose(a, b)`.
pub fn transpose(x: &Tensor, a: isize, b: isize) -> Tensor {
    record_view("TransposeBackward0", x, x.geometry().transposed(a, b), move |g| {
        g.grad().view_as(g.grad().geometry().transposed(a, b))
    })
}

/// `x.unsqueeze(at)`.
pub fn unsqueeze(x: &Tensor, at: isize) -> Tensor {
    record_view("UnsqueezeBackward0", x, x.geometry().unsqueezed(at), move |g| {
        g.grad().view_as(g.grad().geometry().squeezed(at))
    })
}

/// `x.expand(sizes)`; its gradient is summed back.
pub fn expand(x: &Tensor, sizes: &[u64]) -> Tensor {
    let from = x.geometry().clone();
    record_view("ExpandBackward0", x, x.geometry().expanded(sizes), move |g| {
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
    let summed = g.empty("sum.dim_IntList", Geometry::contiguous(&kept), grad.dtype());
    if lead == 0 { summed } else { summed.view_as(Geometry::contiguous(sizes.dims())) }
}

/// `x.narrow(axis, _, length)`, or `x[..., a:b]`: where it starts does not bear on memory.
pub fn narrow(x: &Tensor, axis: isize, length: u64) -> Tensor {
    if x.size(axis) == length {
        return x.clone();
    }
    let from = x.geometry().clone();
    record_view("SliceBackward0", x, x.geometry().narrowed(axis, length), move |g| {
        g.empty("slice_backward", Geometry::contiguous(from.dims()), g.grad().dtype())
    })
}

/// `x.split(size, axis)`; the gradients are concatenated, zeros standing in for those that never came.
pub fn split(x: &Tensor, size: u64, axis: isize) -> Vec<Tensor> {
    let parts = x.size(axis).div_ceil(size);
    let tape = Tape::new(x.cx(), "SplitBackward0", &[x]);
    let mut outputs: Vec<Tensor> =
        (0..parts).map(|i| x.view_as(x.geometry().narrowed(axis, size.min(x.size(axis) - i * size)))).collect();
    let (from, part) = (x.geometry().clone(), outputs[0].dims().to_vec());
    tape.record(outputs.iter_mut(), move |g| {
        let dtype = g.grad().dtype();
        let zeros: Vec<Tensor> = (0..parts as usize)
            .filter(|&i| g.get(i).is_none())
            .map(|_| g.empty("zeros", Geometry::contiguous(&part), dtype))
            .collect();
        let whole = g.empty("cat", Geometry::contiguous(from.dims()), dtype);
        drop(zeros);
        grads([Some(whole)])
    });
    outputs
}

/// `torch.cat(tensors, axis)`; autocast promotes to the widest dtype.
pub fn cat(tensors: &[&Tensor], axis: isize) -> Tensor {
    let first = tensors[0];
    let dtype = tensors.iter().fold(first.dtype(), |d, t| d.promote(t.dtype()));
    let tape = Tape::new(first.cx(), "CatBackward0", tensors);
    let mut dims = first.dims().to_vec();
    dims[first.geometry().axis(axis)] = tensors.iter().map(|t| t.size(axis)).sum();
    let mut out = first.cx().empty_sizes("cat", &dims, dtype);
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
