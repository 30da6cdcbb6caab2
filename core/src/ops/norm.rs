//! Normalisation kernels.

use super::cast::full_precision;
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};

/// `layer_norm` over the last dimension: keeps its input, weight, and the mean and 1/std of every row in float32.
/// float32 under autocast.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let (x, weight, bias) = (full_precision(x), full_precision(weight), bias.map(full_precision));
    let inputs: Vec<&Tensor> = [Some(&x), Some(&weight), bias.as_ref()].into_iter().flatten().collect();
    let tape = Tape::new(x.cx(), "NativeLayerNormBackward0", &inputs);
    let saved_x = tape.save(&x);
    let saved_weight = tape.save(&weight);
    let mut rows = x.dims().to_vec();
    if let Some(last) = rows.last_mut() {
        *last = 1;
    }
    let cx = x.cx();
    let mut out = cx.empty("native_layer_norm", Geometry::contiguous(x.dims()), x.dtype());
    let mean = cx.empty_sizes("native_layer_norm", &rows, DType::Float32);
    let rstd = cx.empty_sizes("native_layer_norm", &rows, DType::Float32);
    let statistics = [tape.save(&mean), tape.save(&rstd)];
    drop((mean, rstd));
    let has_bias = bias.is_some();
    tape.record([&mut out], move |g| {
        let (x, weight) = (saved_x.unpack(), saved_weight.unpack());
        let _statistics = [statistics[0].unpack(), statistics[1].unpack()];
        let op = "native_layer_norm_backward";
        let input = g.needs(0).then(|| g.empty(op, Geometry::contiguous(x.dims()), x.dtype()));
        let weight_grad = g.needs(1).then(|| g.like(op, &weight));
        if has_bias {
            let bias_grad = g.needs(2).then(|| g.like(op, &weight));
            grads([input, weight_grad, bias_grad])
        } else {
            grads([input, weight_grad])
        }
    });
    out
}
