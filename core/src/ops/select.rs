//! Ops that pick elements: `where` and `clamp`.

use crate::tensor::{DType, Geometry, Tape, Tensor, grads};

/// `torch.where(condition, x, number)`: keeps the condition.
pub fn where_scalar(condition: &Tensor, x: &Tensor) -> Tensor {
    let cx = x.cx();
    let number = cx.empty_sizes("scalar_tensor", &[], x.dtype());
    let tape = Tape::new(cx, "WhereBackward0", &[x]);
    let saved = tape.save(condition);
    let mut out = cx.empty("where.self", Geometry::elementwise(&[condition.geometry(), x.geometry()]), x.dtype());
    drop(number);
    tape.record([&mut out], move |g| {
        let condition = saved.unpack();
        let _zero = g.empty("scalar_tensor", Geometry::contiguous(&[]), g.grad().dtype());
        let geometry = Geometry::elementwise(&[condition.geometry(), g.grad().geometry()]);
        grads([Some(g.empty("where.self", geometry, g.grad().dtype()))])
    });
    out
}

/// `torch.clamp(x, min, max)` with tensors for bounds that need no gradient: keeps all three.
pub fn clamp(x: &Tensor, min: &Tensor, max: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), "ClampBackward0", &[x]);
    let saved = [tape.save(x), tape.save(min), tape.save(max)];
    let mut out = x.cx().empty("clamp.Tensor", Geometry::elementwise(&[x.geometry()]), x.dtype());
    tape.record([&mut out], move |g| {
        // clamp_backward: where((self >= min).logical_and_(self <= max), grad, 0)
        let x = saved[0].unpack();
        let _bounds = (saved[1].unpack(), saved[2].unpack());
        let geometry = Geometry::elementwise(&[x.geometry()]);
        let zero = g.empty("scalar_tensor", Geometry::contiguous(&[]), g.grad().dtype());
        let above = g.empty("ge.Tensor", geometry.clone(), DType::Bool);
        let below = g.empty("le.Tensor", geometry.clone(), DType::Bool);
        let inside = g.empty("logical_and", geometry, DType::Bool);
        let chosen = Geometry::elementwise(&[inside.geometry(), g.grad().geometry()]);
        let out = g.empty("where.self", chosen, g.grad().dtype());
        drop((inside, below, above, zero));
        grads([Some(out)])
    });
    out
}
