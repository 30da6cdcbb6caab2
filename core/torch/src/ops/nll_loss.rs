//! The negative log likelihood.

use crate::tensor::{Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `nll_loss`: keeps its input, the targets and the total weight (a scalar).
pub(super) fn nll_loss(input: &Tensor, targets: &Tensor) -> Tensor {
    let tape = Tape::new(input.cx(), GradFn::NllLossBackward0, &[input]);
    let saved = [tape.save(input), tape.save(targets)];
    // Of each row it reads the one number that the target names.
    let picked = targets.numel().saturating_mul(input.dtype().size());
    let mut launch = input.cx().launch(Op::NllLossForward, &[targets]).reads(picked).of(input.dtype());
    let mut loss = launch.make_sizes(&[], input.dtype());
    let total_weight = launch.make_sizes(&[], input.dtype());
    drop(launch);
    let saved_weight = tape.save(&total_weight);
    drop(total_weight);
    tape.record([&mut loss], move |g| {
        let input = saved[0].unpack();
        let (targets, total_weight) = (saved[1].unpack(), saved_weight.unpack());
        let mut launch = g.cx().launch(Op::NllLossBackward, &[g.grad(), &targets, &total_weight]);
        grads([Some(launch.make_like(&input))])
    });
    loss
}
