//! Losses.

use super::cast::full_precision;
use super::label_smoothing::cross_entropy_smoothed;
use super::nll_loss::nll_loss;
use super::softmax::log_softmax;
use crate::tensor::{DType, Geometry, Kernels, Smoothing, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `cross_entropy(logits [N, classes], targets [N])`, mean: log-softmax, then the negative log likelihood.
///
/// `cross_entropy_loss` hands log-softmax the logits' own dtype, so autocast leaves it alone; only the second half is
/// on autocast's float32 list.
///
/// With labels smoothed in the loss it is PyTorch's `label_smoothing=`; with labels smoothed outside the model no loss is
/// computed here at all. In inference no loss is asked for: the logits stand in its place.
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Tensor {
    if logits.cx().is_inference() {
        return logits.clone();
    }
    logits.cx().outputs_are_named();
    match logits.cx().loss_rules().smoothing {
        Smoothing::None => cross_entropy_sum(logits, targets),
        Smoothing::InLoss => cross_entropy_smoothed(logits, targets),
        Smoothing::Outside => no_loss(logits),
    }
}

/// The place of a loss that is not computed.
pub fn no_loss(logits: &Tensor) -> Tensor {
    logits.cx().allocate(Op::None, Geometry::contiguous(&[]), DType::Float32, 0)
}

/// `cross_entropy(logits, targets, reduction="sum")`, which allocates what the mean does.
pub fn cross_entropy_sum(logits: &Tensor, targets: &Tensor) -> Tensor {
    nll_loss(&full_precision(&log_softmax(logits)), targets)
}

/// `mse_loss(input, target)`, mean; float32 under autocast. In inference as [`cross_entropy`].
pub fn mse_loss(input: &Tensor, target: &Tensor) -> Tensor {
    if input.cx().is_inference() {
        return input.clone();
    }
    let (input, target) = (full_precision(input), full_precision(target));
    let tape = Tape::new(input.cx(), GradFn::MseLossBackward0, &[&input]);
    let saved = [tape.save(&input), tape.save(&target)];
    let dtype: DType = input.dtype();
    let mut loss = {
        let mut launch = input.cx().launch(Op::MseLoss, &[&input, &target]);
        if input.cx().machine().kernels == Kernels::Uncounted {
            launch.make_sizes(&[], dtype)
        } else {
            // The kernel writes every square into the result before their mean takes its place: what held them all stays
            // (`mse_loss_out` in `aten/src/ATen/native/BinaryOps.cpp`; seen with PyTorch 2.9, 2.11 and 2.15).
            let squares = launch.make(input.geometry().preserved(), dtype);
            squares.view_as(Geometry::contiguous(&[]))
        }
    };
    tape.record([&mut loss], move |g| {
        let (input, target) = (saved[0].unpack(), saved[1].unpack());
        grads([Some(g.like(Op::MseLossBackward, &input, &[g.grad(), &target]))])
    });
    loss
}

#[cfg(test)]
mod tests {
    use super::{cross_entropy, mse_loss};
    use crate::ops::{neg, to};
    use crate::tensor::testing::{activation, alive, backward_of, forward, input, input_of, live, made, watch};
    use crate::tensor::{DType, Kind};

    /// `nll_loss` keeps its input, and that is `log_softmax`'s kept result: one copy of the logits' size stays.
    #[test]
    fn cross_entropy_keeps_one_copy_of_the_logits() {
        let cx = forward();
        let logits = neg(&activation(&cx, &[16, 100]));
        let loss = cross_entropy(&logits, &input_of(&cx, &[16], DType::Int64));
        drop(logits);
        // And the total weight, a scalar.
        assert_eq!(alive(&cx, Kind::Saved), ["_log_softmax [16, 100] float32", "nll_loss_forward [] float32"]);
        assert_eq!(loss.dims(), [0; 0]);
        // The gradient of nll_loss and that of log_softmax stand side by side: with what is kept, three copies.
        let events = backward_of(loss);
        assert_eq!(made(&events), ["ones_like", "nll_loss_backward", "_log_softmax_backward_data", "neg"]);
        let log_softmax = events.iter().position(|e| e.starts_with("+_log_softmax_backward")).unwrap();
        assert!(!events[..log_softmax].iter().any(|e| e == "-_log_softmax [16, 100] float32"), "{events:?}");
    }

    /// `nll_loss` is on autocast's float32 list, `log_softmax` inside `cross_entropy_loss` is told its dtype and so is
    /// not cast: half logits make a half log-softmax and a float32 copy of it.
    #[test]
    fn cross_entropy_of_half_logits_under_autocast() {
        let cx = forward();
        let half = to(&activation(&cx, &[16, 100]), DType::BFloat16);
        let (events, loss) = watch(&cx, || {
            cx.with_autocast(Some(DType::BFloat16), || cross_entropy(&half, &input_of(&cx, &[16], DType::Int64)))
        });
        assert_eq!(
            made(&events),
            ["empty.memory_format", "_log_softmax", "_to_copy", "nll_loss_forward", "nll_loss_forward"],
            "{events:?}"
        );
        assert_eq!(events[1..3], ["+_log_softmax [16, 100] bfloat16", "+_to_copy [16, 100] float32"]);
        assert_eq!(loss.dtype(), DType::Float32);
    }

    #[test]
    fn outside_autocast_half_logits_stay_half() {
        let cx = forward();
        let half = input_of(&cx, &[4, 10], DType::Float16);
        assert_eq!(cross_entropy(&half, &input_of(&cx, &[4], DType::Int64)).dtype(), DType::Float16);
    }

    /// `mse_loss_backward(grad, self, target, reduction)`.
    #[test]
    fn mse_loss_keeps_both_operands() {
        let cx = forward();
        let x = activation(&cx, &[16, 4]);
        let prediction = neg(&x);
        let target = input(&cx, &[16, 4]);
        let loss = mse_loss(&prediction, &target);
        drop((prediction, target));
        assert_eq!(alive(&cx, Kind::Saved), ["neg [16, 4] float32"]);
        assert_eq!(alive(&cx, Kind::Input), ["empty.memory_format [16, 4] float32"]);
        assert_eq!(made(&backward_of(loss)), ["ones_like", "mse_loss_backward", "neg"]);
        assert_eq!(live(&cx), 2 * 256, "the leaf and its gradient");
        drop(x);
    }
}
