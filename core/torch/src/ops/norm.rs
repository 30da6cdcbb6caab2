//! Normalisation kernels.

use super::cast::full_precision;
use super::inside::{self, Scratch};
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `layer_norm` over the last dimension: keeps its input, weight, bias, and the mean and 1/std of every row in float32
/// (`native_layer_norm` in `derivatives.yaml`). float32 under autocast: of a half weight and bias it keeps the copies.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    // The compiler works out a call's arguments from the last to the first.
    let bias = bias.map(full_precision);
    let weight = full_precision(weight);
    let x = full_precision(x);
    let inputs: Vec<&Tensor> = [Some(&x), Some(&weight), bias.as_ref()].into_iter().flatten().collect();
    let tape = Tape::new(x.cx(), GradFn::NativeLayerNormBackward0, &inputs);
    let saved_bias = bias.as_ref().map(|bias| tape.save(bias));
    let saved_x = tape.save(&x);
    let saved_weight = tape.save(&weight);
    let mut rows = x.dims().to_vec();
    if let Some(last) = rows.last_mut() {
        *last = 1;
    }
    let cx = x.cx();
    let copy = Scratch::contiguous(cx, Op::NativeLayerNorm, x.geometry(), x.dtype());
    let mut launch = cx.launch(Op::NativeLayerNorm, &inputs);
    let mut out = launch.make_sizes(x.dims(), x.dtype());
    let mean = launch.make_sizes(&rows, DType::Float32);
    let rstd = launch.make_sizes(&rows, DType::Float32);
    drop(launch);
    let statistics = [tape.save(&mean), tape.save(&rstd)];
    drop((mean, rstd, copy));
    let has_bias = bias.is_some();
    tape.record([&mut out], move |g| {
        let _bias = saved_bias.as_ref().map(|bias| bias.unpack());
        let (x, weight) = (saved_x.unpack(), saved_weight.unpack());
        let [mean, rstd] = [statistics[0].unpack(), statistics[1].unpack()];
        let op = Op::NativeLayerNormBackward;
        let copy = Scratch::contiguous(g.cx(), op, x.geometry(), x.dtype());
        let mut launch = g.cx().launch(op, &[g.grad(), &x, &mean, &rstd, &weight]);
        let input = g.needs(0).then(|| launch.make(input_order(g.grad(), &x), x.dtype()));
        let mut weight_grad = g.needs(1).then(|| launch.make_like(&weight));
        let mut bias_grad = (has_bias && g.needs(2)).then(|| launch.make_like(&weight));
        drop(launch);
        let incoming = Scratch::contiguous(g.cx(), op, g.grad().geometry(), g.grad().dtype());
        let columns = x.size(-1);
        let sizes = (x.numel() / columns.max(1), columns);
        let summed = [&weight_grad, &bias_grad].into_iter().flatten().count();
        let parts = inside::layer_norm_parts(g.cx(), op, sizes, summed, weight.dtype());
        if parts.is_some() {
            // The sums are tensors of their own, and take the place of what was made for them.
            for gradient in [&mut weight_grad, &mut bias_grad].into_iter().flatten() {
                let total = g.make(Op::SumDimIntList, &[], weight.geometry().preserved(), weight.dtype());
                drop(inside::layer_norm_sum(g.cx(), sizes, weight.dtype()));
                *gradient = total;
            }
        }
        drop((parts, incoming, copy));
        if has_bias { grads([input, weight_grad, bias_grad]) } else { grads([input, weight_grad]) }
    });
    out
}

/// The memory order of the input's gradient. The reference rows have it from `native_layer_norm_backward` in
/// `torch/_decomp/decompositions.py`, which in float32 keeps the order of the gradient it is given and otherwise makes a
/// row-major one; the CUDA kernel always makes a row-major one (`layer_norm_backward_cuda` in `layer_norm_kernel.cu`).
fn input_order(grad: &Tensor, x: &Tensor) -> Geometry {
    let as_traced = !x.cx().machine().kernels.is_counted();
    if as_traced && grad.dtype() == DType::Float32 && x.dtype() == DType::Float32 {
        Geometry::elementwise(&[grad.geometry(), x.geometry()])
    } else {
        Geometry::contiguous(x.dims())
    }
}

#[cfg(test)]
mod tests {
    use super::layer_norm;
    use crate::ops::neg;
    use crate::tensor::testing::{
        activation, alive, backward_of, forward, frozen_of, gradient, input_of, made, seen, weight,
    };
    use crate::tensor::{DType, Kind};

    /// `native_layer_norm_backward(grad, input, normalized_shape, mean, rstd, weight, bias, ...)`: the result is not
    /// kept, the statistics are float32, one a row.
    #[test]
    fn layer_norm_keeps_its_input_and_two_statistics_a_row() {
        let cx = forward();
        let x = neg(&activation(&cx, &[2, 16, 8]));
        let out = layer_norm(&x, &weight(&cx, &[8]), Some(&weight(&cx, &[8])));
        drop(x);
        assert_eq!(
            alive(&cx, Kind::Saved),
            ["neg [2, 16, 8] float32", "native_layer_norm [2, 16, 1] float32", "native_layer_norm [2, 16, 1] float32"]
        );
        let events = backward_of(out);
        let births: Vec<&String> = events.iter().filter(|e| e.starts_with("+native_layer_norm_backward")).collect();
        assert_eq!(
            births,
            [
                "+native_layer_norm_backward [2, 16, 8] float32",
                "+native_layer_norm_backward [8] float32",
                "+native_layer_norm_backward [8] float32"
            ]
        );
    }

    /// Half inputs outside autocast: result in half, statistics in float32 all the same.
    #[test]
    fn statistics_of_half_inputs_are_float32() {
        let cx = forward();
        let w = frozen_of(&cx, &[8], DType::BFloat16);
        let out = layer_norm(&input_of(&cx, &[4, 8], DType::BFloat16), &w, None);
        assert_eq!(out.dtype(), DType::BFloat16);
        assert_eq!(seen(&cx, 2)[1..3], ["+native_layer_norm [4, 1] float32", "+native_layer_norm [4, 1] float32"]);
    }

    /// A norm that was loaded in 16 bits computes in float32 under autocast, and its copies live until backward.
    #[test]
    fn the_copies_of_a_half_norm_are_kept() {
        let cx = forward();
        let x = activation(&cx, &[4, 8]);
        let half = || frozen_of(&cx, &[8], DType::BFloat16);
        let (w, b) = (half(), half());
        let out = cx.with_autocast(Some(DType::BFloat16), || layer_norm(&x, &w, Some(&b)));
        let copies: Vec<String> = alive(&cx, Kind::Saved).into_iter().filter(|s| s.contains(" [8] ")).collect();
        assert_eq!(copies, ["_to_copy [8] float32", "_to_copy [8] float32"]);
        drop(out);
    }

    /// The output mask of the backward kernel: frozen weights get no gradient.
    #[test]
    fn a_frozen_norm_makes_only_the_inputs_gradient() {
        let cx = forward();
        let x = activation(&cx, &[4, 8]);
        let out = layer_norm(&x, &frozen_of(&cx, &[8], DType::Float32), Some(&frozen_of(&cx, &[8], DType::Float32)));
        assert_eq!(made(&backward_of(out)), ["ones_like", "native_layer_norm_backward"]);
        assert!(gradient(&x).is_some());
    }

    #[test]
    fn a_norm_without_bias_makes_two_gradients() {
        let cx = forward();
        let (x, w) = (activation(&cx, &[4, 8]), weight(&cx, &[8]));
        assert_eq!(made(&backward_of(layer_norm(&x, &w, None))).len(), 3);
        assert_eq!(gradient(&w).unwrap().dims(), [8]);
    }
}
