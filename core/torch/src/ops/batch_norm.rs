//! Batch normalisation in training.

use plimsoll_ground::{Error, Reason};

use crate::tensor::{DType, Geometry, Saved, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `batch_norm(x, weight, bias)` over `[N, C, H, W]`: keeps its input, its weight, and mean and 1/std of every channel
/// in float32. `running` statistics are updated in place, and kept.
///
/// cuDNN runs it for float32, and for float16 activations with float32 weights; PyTorch's own kernel for the rest
/// (`_select_batch_norm_backend` in `Normalization.cpp`). Both keep the same; the reserve cuDNN may ask for in
/// channels-last order is not counted.
pub fn batch_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, running: [&Tensor; 2]) -> Tensor {
    // Autocast leaves it what the convolution before it made.
    if weight.dtype() != DType::Float32 && weight.dtype() != x.dtype() {
        x.cx().refuse(|| {
            let (module, was, wanted) = (x.cx().path(x.cx().current_module()), weight.dtype().name(), x.dtype().name());
            let problem = format!(
                "{module}, a batch norm with weights in {was}, is given {wanted}: PyTorch has no kernel for that"
            );
            Error::new("training.base_dtype", problem, "use float32, or the dtype of the autocast")
                .because(Reason::MixedBatchNorm)
        });
    }
    let cudnn = weight.dtype() == DType::Float32 && x.dtype() != DType::BFloat16;
    let (op, node, backward) = if cudnn {
        (Op::CudnnBatchNorm, GradFn::CudnnBatchNormBackward0, Op::CudnnBatchNormBackward)
    } else {
        (Op::NativeBatchNorm, GradFn::NativeBatchNormBackward0, Op::NativeBatchNormBackward)
    };
    let tape = Tape::new(x.cx(), node, &[x, weight, bias]);
    let saved_x = tape.save(x);
    let kept = running.map(|running| tape.save(running));
    let saved_weight = tape.save(weight);
    let channels = Geometry::contiguous(&[x.size(1)]);
    let cx = x.cx();
    // Beside its results it reads and writes the running statistics.
    let running = 2 * DType::Float32.size() * x.size(1);
    let mut launch = cx.launch(op, &[x, weight, bias]).reads(running).writes(running);
    let mut out = launch.make(Geometry::elementwise(&[x.geometry()]), x.dtype());
    // In evaluation cuDNN is given the running ones, and makes none (`cudnn_batch_norm` in `torch/_decomp/decompositions.py` says so too).
    let made = if cudnn && cx.is_inference() { Geometry::contiguous(&[0]) } else { channels };
    let mean = launch.make(made.clone(), DType::Float32);
    let invstd = launch.make(made, DType::Float32);
    drop(launch);
    let statistics = [tape.save(&mean), tape.save(&invstd)];
    if cudnn {
        // What cuDNN reserves is nothing.
        tape.save_nothing();
    }
    drop((mean, invstd));
    tape.record([&mut out], move |g| {
        let x = saved_x.unpack();
        let running = kept.each_ref().map(Saved::unpack);
        let weight = saved_weight.unpack();
        let [mean, invstd] = [statistics[0].unpack(), statistics[1].unpack()];
        let mut launch = g.cx().launch(backward, &[g.grad(), &x, &weight, &mean, &invstd]);
        let input = g.needs(0).then(|| launch.make_like(&x));
        let weight_grad = g.needs(1).then(|| launch.make_like(&weight));
        let bias_grad = g.needs(2).then(|| launch.make_like(&weight));
        drop((launch, running));
        grads([input, weight_grad, bias_grad])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::batch_norm;
    use crate::ops::{self, neg};
    use crate::tensor::testing::{
        activation, activation_of, alive, backward_of, forward, made, watch, weight, weight_of,
    };
    use crate::tensor::{DType, Kind};

    /// `cudnn_batch_norm_backward(input, grad, weight, running_mean, running_var, result1, result2, eps, result3)`.
    #[test]
    fn the_input_and_two_statistics_a_channel_are_kept() {
        let cx = forward();
        let x = neg(&activation(&cx, &[2, 3, 8, 8]));
        let running = cx.counting_as(Kind::Buffer, || ops::loaded(&cx, &[3], DType::Float32));
        let out = batch_norm(&x, &weight(&cx, &[3]), &weight(&cx, &[3]), [&running, &running]);
        drop(x);
        assert_eq!(
            alive(&cx, Kind::Saved),
            ["neg [2, 3, 8, 8] float32", "cudnn_batch_norm [3] float32", "cudnn_batch_norm [3] float32"]
        );
        let back = "cudnn_batch_norm_backward";
        assert_eq!(made(&backward_of(out)), ["ones_like", back, back, back, "neg"]);
    }

    /// `_select_batch_norm_backend`: what cuDNN does not take, PyTorch's own kernel does, with float32 statistics.
    #[test]
    fn the_kernel_follows_the_dtypes() {
        let node = |x, w| {
            let cx = forward();
            let (weight, bias) = (weight_of(&cx, &[3], w), weight_of(&cx, &[3], w));
            let running = cx.counting_as(Kind::Buffer, || ops::loaded(&cx, &[3], DType::Float32));
            let out = batch_norm(&activation_of(&cx, &[2, 3, 8, 8], x), &weight, &bias, [&running, &running]);
            let kept = alive(&cx, Kind::Saved);
            drop(out);
            kept.last().cloned().unwrap_or_default()
        };
        assert_eq!(node(DType::Float16, DType::Float32), "cudnn_batch_norm [3] float32");
        assert_eq!(node(DType::BFloat16, DType::Float32), "native_batch_norm [3] float32");
        assert_eq!(node(DType::BFloat16, DType::BFloat16), "native_batch_norm [3] float32");
        assert_eq!(node(DType::Float16, DType::Float16), "native_batch_norm [3] float32");
    }

    /// ResNet-50 in float32 on a hollow H100: its forward pass in evaluation makes the output of every norm and no statistics;
    /// in bfloat16, where PyTorch's own kernel runs, ResNet-18's makes both.
    #[test]
    fn cudnn_makes_no_statistics_in_evaluation() {
        for (dtype, statistics) in [(DType::Float32, 0), (DType::BFloat16, 2)] {
            let cx = forward();
            cx.set_inference();
            let x = activation_of(&cx, &[2, 3, 8, 8], dtype);
            let norm = || weight_of(&cx, &[3], dtype);
            let running = cx.counting_as(Kind::Buffer, || ops::loaded(&cx, &[3], DType::Float32));
            let (weight, bias) = (norm(), norm());
            let (events, _out) = watch(&cx, || cx.no_grad(|| batch_norm(&x, &weight, &bias, [&running, &running])));
            assert_eq!(made(&events).len(), 1 + statistics, "{dtype:?}");
        }
    }
}
