//! Clamping in place, and layer norm without parameters.

use super::cast::full_precision;
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};

/// `x.clamp_(min, max)`: in place, but its gradient needs what x was, so that is copied first.
pub fn clamp_in_place(x: Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), "ClampBackward1", &[&x]);
    let original = tape.needs(0).then(|| x.cx().empty("clone", x.geometry().preserved(), x.dtype()));
    let saved = original.as_ref().map_or(crate::tensor::Saved::Nothing, |o| tape.save(o));
    drop(original);
    let mut out = x.view_as(x.geometry().clone());
    drop(x);
    tape.record([&mut out], move |g| {
        let x = saved.unpack();
        // clamp_backward: where((self >= min).logical_and_(self <= max), grad, 0)
        let zero = g.empty("scalar_tensor", Geometry::contiguous(&[]), g.grad().dtype());
        let above = g.empty("ge.Scalar", x.geometry().preserved(), DType::Bool);
        drop(g.empty("le.Scalar", x.geometry().preserved(), DType::Bool));
        let out = g.like("where.self", g.grad());
        drop((above, zero));
        grads([Some(out)])
    });
    out
}

/// `layer_norm(x, shape, None, None)` over the last dimension: keeps its input, and the mean and 1/std of every row in
/// float32. float32 under autocast.
pub fn layer_norm_plain(x: &Tensor) -> Tensor {
    let x = full_precision(x);
    let tape = Tape::new(x.cx(), "NativeLayerNormBackward0", &[&x]);
    let saved_x = tape.save(&x);
    let mut rows = x.dims().to_vec();
    if let Some(last) = rows.last_mut() {
        *last = 1;
    }
    let mut out = x.cx().empty("native_layer_norm", Geometry::contiguous(x.dims()), x.dtype());
    let mean = x.cx().empty_sizes("native_layer_norm", &rows, DType::Float32);
    let rstd = x.cx().empty_sizes("native_layer_norm", &rows, DType::Float32);
    let statistics = [tape.save(&mean), tape.save(&rstd)];
    drop((mean, rstd));
    tape.record([&mut out], move |g| {
        let x = saved_x.unpack();
        let _statistics = [statistics[0].unpack(), statistics[1].unpack()];
        grads([Some(g.empty("native_layer_norm_backward", Geometry::contiguous(x.dims()), x.dtype()))])
    });
    out
}
