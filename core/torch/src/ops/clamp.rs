//! Clamping in place, and layer norm without parameters.

use super::cast::full_precision;
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `x.clamp_(min, max)`: in place, but its gradient needs what x was, so that is copied first.
pub fn clamp_in_place(x: Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::ClampBackward1, &[&x]);
    let original = tape.needs(0).then(|| x.cx().launch(Op::Clone, &[&x]).make_like(&x));
    let saved = original.as_ref().map_or(crate::tensor::Saved::Nothing, |o| tape.save(o));
    drop(original);
    x.cx().in_place(Op::ClampInPlace, &x, &[]);
    let mut out = x.view_as(x.geometry().clone());
    drop(x);
    tape.record([&mut out], move |g| {
        let x = saved.unpack();
        // clamp_backward: where((self >= min).logical_and_(self <= max), grad, 0)
        let zero = g.make(Op::ScalarTensor, &[], Geometry::contiguous(&[]), g.grad().dtype());
        let above = g.make(Op::GeScalar, &[&x], x.geometry().preserved(), DType::Bool);
        let below = g.make(Op::LeScalar, &[&x], x.geometry().preserved(), DType::Bool);
        g.cx().in_place(Op::LogicalAndInPlace, &above, &[&below]);
        let out = g.like(Op::WhereSelf, g.grad(), &[&above]);
        drop((above, below, zero));
        grads([Some(out)])
    });
    out
}

/// `layer_norm(x, shape, None, None)` over the last dimension: keeps its input, and the mean and 1/std of every row in
/// float32. float32 under autocast.
pub fn layer_norm_plain(x: &Tensor) -> Tensor {
    let x = full_precision(x);
    let tape = Tape::new(x.cx(), GradFn::NativeLayerNormBackward0, &[&x]);
    let saved_x = tape.save(&x);
    let mut rows = x.dims().to_vec();
    if let Some(last) = rows.last_mut() {
        *last = 1;
    }
    let mut launch = x.cx().launch(Op::NativeLayerNorm, &[&x]);
    let mut out = launch.make_sizes(x.dims(), x.dtype());
    let mean = launch.make_sizes(&rows, DType::Float32);
    let rstd = launch.make_sizes(&rows, DType::Float32);
    drop(launch);
    let statistics = [tape.save(&mean), tape.save(&rstd)];
    drop((mean, rstd));
    tape.record([&mut out], move |g| {
        let x = saved_x.unpack();
        let [mean, rstd] = [statistics[0].unpack(), statistics[1].unpack()];
        let mut launch = g.cx().launch(Op::NativeLayerNormBackward, &[g.grad(), &x, &mean, &rstd]);
        grads([Some(launch.make_sizes(x.dims(), x.dtype()))])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{clamp_in_place, layer_norm_plain};
    use crate::ops::neg;
    use crate::tensor::Kind;
    use crate::tensor::testing::{activation, alive, backward_of, forward, made, watch};

    /// `clamp_backward(grad, self, min, max)` needs what was overwritten.
    #[test]
    fn clamping_in_place_keeps_a_copy_of_what_was() {
        let cx = forward();
        let x = neg(&activation(&cx, &[8, 4]));
        let (events, out) = watch(&cx, || clamp_in_place(x));
        assert_eq!(events, ["+clone [8, 4] float32"]);
        assert_eq!(
            made(&backward_of(out)),
            ["ones_like", "scalar_tensor", "ge.Scalar", "le.Scalar", "where.self", "neg"]
        );
    }

    #[test]
    fn a_norm_without_parameters_makes_only_its_inputs_gradient() {
        let cx = forward();
        let out = layer_norm_plain(&neg(&activation(&cx, &[8, 4])));
        assert_eq!(
            alive(&cx, Kind::Saved),
            ["neg [8, 4] float32", "native_layer_norm [8, 1] float32", "native_layer_norm [8, 1] float32"]
        );
        assert_eq!(made(&backward_of(out)), ["ones_like", "native_layer_norm_backward", "neg"]);
    }
}
