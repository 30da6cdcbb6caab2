//! Losses.

use super::cast::full_precision;
use super::softmax::log_softmax;
use crate::tensor::{DType, Tape, Tensor, grads};

/// `cross_entropy(logits [N, classes], targets [N])`, mean: log-softmax, then the negative log likelihood.
///
/// `cross_entropy_loss` hands log-softmax the logits' own dtype, so autocast leaves it alone; only the second half is
/// on autocast's float32 list.
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Tensor {
    nll_loss(&full_precision(&log_softmax(logits)), targets)
}

/// `nll_loss`: keeps its input, the targets and the total weight (a scalar).
fn nll_loss(input: &Tensor, targets: &Tensor) -> Tensor {
    let tape = Tape::new(input.cx(), "NllLossBackward0", &[input]);
    let saved = [tape.save(input), tape.save(targets)];
    let mut loss = input.cx().empty_sizes("nll_loss_forward", &[], input.dtype());
    let total_weight = input.cx().empty_sizes("nll_loss_forward", &[], input.dtype());
    let saved_weight = tape.save(&total_weight);
    drop(total_weight);
    tape.record([&mut loss], move |g| {
        let input = saved[0].unpack();
        let _rest = (saved[1].unpack(), saved_weight.unpack());
        grads([Some(g.like("nll_loss_backward", &input))])
    });
    loss
}

/// `mse_loss(input, target)`, mean; float32 under autocast.
pub fn mse_loss(input: &Tensor, target: &Tensor) -> Tensor {
    let (input, target) = (full_precision(input), full_precision(target));
    let tape = Tape::new(input.cx(), "MseLossBackward0", &[&input]);
    let saved = [tape.save(&input), tape.save(&target)];
    let dtype: DType = input.dtype();
    let mut loss = input.cx().empty_sizes("mse_loss", &[], dtype);
    tape.record([&mut loss], move |g| {
        let (input, _target) = (saved[0].unpack(), saved[1].unpack());
        grads([Some(g.like("mse_loss_backward", &input))])
    });
    loss
}
