//! Ops that pick elements: `where`, `clamp` and indexing.

use super::inside;
use crate::tensor::{DType, Geometry, Saved, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `torch.where(condition, x, number)`: keeps the condition.
pub fn where_scalar(condition: &Tensor, x: &Tensor) -> Tensor {
    let cx = x.cx();
    let number = cx.empty_sizes(Op::ScalarTensor, &[], x.dtype());
    let tape = Tape::new(cx, GradFn::WhereBackward0, &[x]);
    let saved = tape.save(condition);
    let mut out = cx.empty(Op::WhereSelf, Geometry::elementwise(&[condition.geometry(), x.geometry()]), x.dtype());
    drop(number);
    tape.record([&mut out], move |g| {
        let condition = saved.unpack();
        let _zero = g.empty(Op::ScalarTensor, Geometry::contiguous(&[]), g.grad().dtype());
        let geometry = Geometry::elementwise(&[condition.geometry(), g.grad().geometry()]);
        grads([Some(g.empty(Op::WhereSelf, geometry, g.grad().dtype()))])
    });
    out
}

/// `torch.clamp(x, min, max)` with tensors for bounds that need no gradient: keeps all three.
pub fn clamp(x: &Tensor, min: &Tensor, max: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::ClampBackward0, &[x]);
    let saved = [tape.save(x), tape.save(min), tape.save(max)];
    let mut out = x.cx().empty(Op::ClampTensor, Geometry::elementwise(&[x.geometry()]), x.dtype());
    tape.record([&mut out], move |g| {
        // clamp_backward: where((self >= min).logical_and_(self <= max), grad, 0)
        let x = saved[0].unpack();
        let _bounds = (saved[1].unpack(), saved[2].unpack());
        let geometry = Geometry::elementwise(&[x.geometry()]);
        let zero = g.empty(Op::ScalarTensor, Geometry::contiguous(&[]), g.grad().dtype());
        let above = g.empty(Op::GeTensor, geometry.clone(), DType::Bool);
        let below = g.empty(Op::LeTensor, geometry.clone(), DType::Bool);
        let inside = g.empty(Op::LogicalAnd, geometry, DType::Bool);
        let chosen = Geometry::elementwise(&[inside.geometry(), g.grad().geometry()]);
        let out = g.empty(Op::WhereSelf, chosen, g.grad().dtype());
        drop((inside, below, above, zero));
        grads([Some(out)])
    });
    out
}

/// `torch.clamp(x, min=a, max=b)` with numbers for bounds: keeps x.
pub fn clamp_numbers(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::ClampBackward1, &[x]);
    let saved = tape.save(x);
    let mut out = x.cx().empty(Op::Clamp, Geometry::elementwise(&[x.geometry()]), x.dtype());
    tape.record([&mut out], move |g| {
        // clamp_backward: where((self >= min).logical_and_(self <= max), grad, 0)
        let x = saved.unpack();
        let geometry = Geometry::elementwise(&[x.geometry()]);
        let _zero = g.empty(Op::ScalarTensor, Geometry::contiguous(&[]), g.grad().dtype());
        let inside = g.empty(Op::GeScalar, geometry.clone(), DType::Bool);
        let _below = g.empty(Op::LeScalar, geometry, DType::Bool);
        let chosen = Geometry::elementwise(&[inside.geometry(), g.grad().geometry()]);
        grads([Some(g.empty(Op::WhereSelf, chosen, g.grad().dtype()))])
    });
    out
}

/// `x[i, j, ...]` with a tensor of indices for each of the leading dimensions: keeps the indices; backward adds into zeros
/// of the whole.
pub fn index(x: &Tensor, indices: &[&Tensor]) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::IndexBackward0, &[x]);
    let saved: Vec<Saved> = indices.iter().map(|i| tape.save(i)).collect();
    let mut sizes = indices.first().map_or(&[][..], |i| i.dims()).to_vec();
    sizes.extend_from_slice(&x.dims()[indices.len()..]);
    let mut out = x.cx().empty_sizes(Op::IndexTensor, &sizes, x.dtype());
    let whole = Geometry::contiguous(x.dims());
    tape.record([&mut out], move |g| {
        let indices: Vec<Tensor> = saved.iter().map(Saved::unpack).collect();
        let gradient = g.empty(Op::NewZeros, whole.clone(), g.grad().dtype());
        let values = (g.grad().geometry(), g.grad().dtype());
        drop(inside::accumulate_rows(g.cx(), Op::IndexPut, indices.first().map_or(0, Tensor::numel), values));
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
    let mut out = x.cx().empty_sizes(Op::IndexTensor, &sizes, x.dtype());
    let whole = Geometry::contiguous(x.dims());
    tape.record([&mut out], move |g| {
        let _number = saved.unpack();
        grads([Some(g.empty(Op::NewZeros, whole.clone(), g.grad().dtype()))])
    });
    out
}

/// `x.unbind(axis)`: its backward stacks the gradients, zeros standing in for those that never came.
pub fn unbind(x: &Tensor, axis: isize) -> Vec<Tensor> {
    let tape = Tape::new(x.cx(), GradFn::UnbindBackward0, &[x]);
    let mut outputs: Vec<Tensor> =
        (0..x.size(axis)).map(|_| x.view_as(x.geometry().narrowed(axis, 1).squeezed(axis))).collect();
    let parts = outputs.len();
    let from = x.geometry().clone();
    tape.record(outputs.iter_mut(), move |g| {
        let dtype = g.grad().dtype();
        let part = Geometry::contiguous(from.narrowed(axis, 1).squeezed(axis).dims());
        let zeros: Vec<Tensor> =
            (0..parts).filter(|&i| g.get(i).is_none()).map(|_| g.empty(Op::Zeros, part.clone(), dtype)).collect();
        let whole = g.empty(Op::Stack, Geometry::contiguous(from.dims()), dtype);
        drop(zeros);
        grads([Some(whole)])
    });
    outputs
}
