//! Ops that pick elements: `where`, `clamp` and indexing.

use super::elementwise::unary;
use super::inside;
use crate::tensor::{DType, Geometry, Gradients, Saved, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `torch.where(condition, x, number)`: keeps the condition.
pub fn where_scalar(condition: &Tensor, x: &Tensor) -> Tensor {
    let number = x.cx().launch(Op::ScalarTensor, &[]).make_sizes(&[], x.dtype());
    where_tensor(condition, x, &number)
}

/// `torch.where(condition, x, other)` of an `other` that is one number on the device and wants no gradient: keeps the
/// condition.
pub fn where_tensor(condition: &Tensor, x: &Tensor, other: &Tensor) -> Tensor {
    let cx = x.cx();
    let tape = Tape::new(cx, GradFn::WhereBackward0, &[x]);
    let saved = tape.save(condition);
    let geometry = Geometry::elementwise(&[condition.geometry(), x.geometry()]);
    let mut out = cx.launch(Op::WhereSelf, &[x, condition]).make(geometry, x.dtype().promote(other.dtype()));
    tape.record([&mut out], move |g| {
        let condition = saved.unpack();
        let _zero = g.make(Op::ScalarTensor, &[], Geometry::contiguous(&[]), g.grad().dtype());
        let geometry = Geometry::elementwise(&[condition.geometry(), g.grad().geometry()]);
        grads([Some(g.make(Op::WhereSelf, &[g.grad(), &condition], geometry, g.grad().dtype()))])
    });
    out
}

/// `torch.max(x, other)` of an `other` that is one number on the device and wants no gradient: keeps both.
pub fn maximum(x: &Tensor, other: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::MaximumBackward0, &[x]);
    let saved = [tape.save(other), tape.save(x)];
    let geometry = Geometry::elementwise(&[x.geometry()]);
    let mut out = x.cx().launch(Op::Maximum, &[x, other]).make(geometry, x.dtype());
    tape.record([&mut out], move |g| {
        // where(self == other, grad / 2, grad).masked_fill_(self < other, 0)
        let (other, x) = (saved[0].unpack(), saved[1].unpack());
        let geometry = Geometry::elementwise(&[x.geometry()]);
        let half = g.like(Op::DivTensor, g.grad(), &[]);
        let equal = g.make(Op::EqTensor, &[&x, &other], geometry.clone(), DType::Bool);
        let sizes = Geometry::elementwise(&[equal.geometry(), g.grad().geometry()]);
        let chosen = g.make(Op::WhereSelf, &[g.grad(), &equal, &half], sizes, g.grad().dtype());
        let below = g.make(Op::LtTensor, &[&x, &other], geometry, DType::Bool);
        g.cx().in_place(Op::MaskedFillInPlace, &chosen, &[&below]);
        drop((below, equal, half));
        grads([Some(chosen)])
    });
    out
}

/// `torch.clamp(x, min, max)` with tensors for bounds that need no gradient: keeps all three.
pub fn clamp(x: &Tensor, min: &Tensor, max: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::ClampBackward0, &[x]);
    let saved = [tape.save(max), tape.save(min), tape.save(x)];
    let mut out =
        x.cx().launch(Op::ClampTensor, &[x, min, max]).make(Geometry::elementwise(&[x.geometry()]), x.dtype());
    tape.record([&mut out], move |g| {
        // clamp_backward: where((self >= min).logical_and_(self <= max), grad, 0)
        let (max, min) = (saved[0].unpack(), saved[1].unpack());
        let x = saved[2].unpack();
        let geometry = Geometry::elementwise(&[x.geometry()]);
        let zero = g.make(Op::ScalarTensor, &[], Geometry::contiguous(&[]), g.grad().dtype());
        let above = g.make(Op::GeTensor, &[&x, &min], geometry.clone(), DType::Bool);
        let below = g.make(Op::LeTensor, &[&x, &max], geometry.clone(), DType::Bool);
        // Fake tensors, which the reference rows were traced with, are taken for a subclass's: for those it is a new tensor.
        let inside = if g.cx().machine().kernels.is_counted() {
            g.cx().in_place(Op::LogicalAndInPlace, &above, &[&below]);
            above.clone()
        } else {
            g.make(Op::LogicalAnd, &[&above, &below], geometry, DType::Bool)
        };
        let chosen = Geometry::elementwise(&[inside.geometry(), g.grad().geometry()]);
        let out = g.make(Op::WhereSelf, &[g.grad(), &inside], chosen, g.grad().dtype());
        drop((inside, below, above, zero));
        grads([Some(out)])
    });
    out
}

/// `torch.clamp(x, min=a, max=b)` with numbers for bounds: keeps x.
pub fn clamp_numbers(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::ClampBackward1, &[x]);
    let saved = tape.save(x);
    let mut out = unary(Op::Clamp, x);
    tape.record([&mut out], move |g| {
        // clamp_backward: where((self >= min).logical_and_(self <= max), grad, 0)
        let x = saved.unpack();
        let geometry = Geometry::elementwise(&[x.geometry()]);
        let _zero = g.make(Op::ScalarTensor, &[], Geometry::contiguous(&[]), g.grad().dtype());
        let inside = g.make(Op::GeScalar, &[&x], geometry.clone(), DType::Bool);
        let below = g.make(Op::LeScalar, &[&x], geometry, DType::Bool);
        g.cx().in_place(Op::LogicalAndInPlace, &inside, &[&below]);
        let chosen = Geometry::elementwise(&[inside.geometry(), g.grad().geometry()]);
        grads([Some(g.make(Op::WhereSelf, &[g.grad(), &inside], chosen, g.grad().dtype()))])
    });
    out
}

/// `x.clamp(max=number)`.
pub fn clamp_max(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::ClampBackward1, &[x]);
    let saved = tape.save(x);
    let mut out = unary(Op::Clamp, x);
    tape.record([&mut out], move |g| {
        // clamp_backward: where(self <= max, grad, 0)
        let x = saved.unpack();
        let _zero = g.make(Op::ScalarTensor, &[], Geometry::contiguous(&[]), g.grad().dtype());
        let below = g.make(Op::LeScalar, &[&x], Geometry::elementwise(&[x.geometry()]), DType::Bool);
        let chosen = Geometry::elementwise(&[below.geometry(), g.grad().geometry()]);
        grads([Some(g.make(Op::WhereSelf, &[g.grad(), &below], chosen, g.grad().dtype()))])
    });
    out
}

/// The kernel of an index: of x it reads what it picks.
pub(super) fn picked(x: &Tensor, sizes: &[u64], indices: &[&Tensor]) -> Tensor {
    let geometry = Geometry::contiguous(sizes);
    let read = geometry.numel().saturating_mul(x.dtype().size());
    x.cx().launch(Op::IndexTensor, indices).reads(read).of(x.dtype()).make(geometry, x.dtype())
}

/// `index_put_(indices, grad, accumulate=True)`: of what it adds to it reads and writes as much as there is to add.
pub(super) fn put_back(g: &Gradients<'_>, indices: &[&Tensor]) {
    let grad = g.grad();
    drop(g.cx().launch(Op::IndexPut, indices).reads(2 * grad.touched()).of(grad.dtype()).over(grad));
}

/// `x[i, j, ...]` with a tensor of indices for each of the leading dimensions: keeps the indices; backward adds into zeros
/// of the whole.
pub fn index(x: &Tensor, indices: &[&Tensor]) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::IndexBackward0, &[x]);
    let saved: Vec<Saved> = indices.iter().map(|i| tape.save(i)).collect();
    let mut sizes = indices.first().map_or(&[][..], |i| i.dims()).to_vec();
    sizes.extend_from_slice(&x.dims()[indices.len()..]);
    let mut out = picked(x, &sizes, indices);
    let whole = Geometry::contiguous(x.dims());
    tape.record([&mut out], move |g| {
        let indices: Vec<Tensor> = saved.iter().map(Saved::unpack).collect();
        let gradient = g.make(Op::NewZeros, &[], whole.clone(), g.grad().dtype());
        let places: Vec<&Tensor> = indices.iter().collect();
        let values = (g.grad().geometry(), g.grad().dtype());
        let rows = inside::Rows::numbered(indices.first().map_or(0, Tensor::numel), indices.len());
        drop(inside::accumulate_rows(g.cx(), Op::IndexPut, rows, (&whole, false), values));
        put_back(g, &places);
        grads([Some(gradient)])
    });
    out
}

/// `x[..., [i], ...]` along `axis` for a list of one number, whose tensor `number` is: as [`index`].
pub fn index_one(x: &Tensor, axis: isize, number: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::IndexBackward0, &[x]);
    let saved = tape.save(number);
    let mut sizes = x.dims().to_vec();
    sizes[x.geometry().axis(axis)] = 1;
    let mut out = picked(x, &sizes, &[number]);
    let whole = Geometry::contiguous(x.dims());
    tape.record([&mut out], move |g| {
        let number = saved.unpack();
        let gradient = g.make(Op::NewZeros, &[], whole.clone(), g.grad().dtype());
        let values = (g.grad().geometry(), g.grad().dtype());
        drop(inside::accumulate_rows(
            g.cx(),
            Op::IndexPut,
            inside::Rows::numbered(number.numel(), 1),
            (&whole, false),
            values,
        ));
        put_back(g, &[&number]);
        grads([Some(gradient)])
    });
    out
}

/// `x.unbind(axis)`: its backward stacks the gradients, zeros standing in for those that never came.
pub fn unbind(x: &Tensor, axis: isize) -> Vec<Tensor> {
    let tape = Tape::new(x.cx(), GradFn::UnbindBackward0, &[x]);
    let stride = x.geometry().strides()[x.geometry().axis(axis)];
    let part = |i: u64| x.view_as(x.geometry().narrowed(axis, 1).squeezed(axis)).beginning(i.saturating_mul(stride));
    let mut outputs: Vec<Tensor> = (0..x.size(axis)).map(part).collect();
    let parts = outputs.len();
    let from = x.geometry().clone();
    tape.record(outputs.iter_mut(), move |g| {
        let dtype = g.grad().dtype();
        let part = Geometry::contiguous(from.narrowed(axis, 1).squeezed(axis).dims());
        let zeros: Vec<Tensor> =
            (0..parts).filter(|&i| g.get(i).is_none()).map(|_| g.make(Op::Zeros, &[], part.clone(), dtype)).collect();
        let whole = g.gathered(Op::Stack, &zeros, Geometry::contiguous(from.dims()));
        drop(zeros);
        grads([Some(whole)])
    });
    outputs
}
