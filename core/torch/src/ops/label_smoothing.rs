//! Cross-entropy with smoothed labels: PyTorch's own, and that of transformers' Trainer.

use super::cast::{full_precision, to};
use super::elementwise::{add, mul_cpp_scalar, mul_scalar, neg};
use super::masked_fill::masked_fill_in_place;
use super::nll_loss::nll_loss;
use super::plain::{Reduction, reduction};
use super::reduce::sum_all;
use super::similarity::div;
use super::softmax::log_softmax;
use super::view::{contiguous, narrow, narrow_from, unsqueeze, whole};
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};
use crate::{GradFn, Op};

/// `cross_entropy(logits [N, classes], targets [N], label_smoothing=p)`, mean (`cross_entropy_loss_label_smoothing` in
/// `aten/src/ATen/native/LossNLL.cpp`).
pub fn cross_entropy_smoothed(logits: &Tensor, targets: &Tensor) -> Tensor {
    let cx = logits.cx();
    let input = log_softmax(logits);
    let nll = nll_loss(&full_precision(&input), targets);
    let smooth = {
        let sum = sum_classes(&input, cx.summed(input.dtype()), false);
        neg(&sum)
    };
    let ignored = cx.launch(Op::EqScalar, &[targets]).make_sizes(targets.dims(), DType::Bool);
    let smooth = masked_fill_in_place(smooth, &ignored);
    let mean = {
        let counted = cx.launch(Op::BitwiseNot, &[&ignored]).make_sizes(targets.dims(), DType::Bool);
        let count = reduction(Reduction::Sum, &counted, &[], DType::Int64);
        let total = sum_all(&smooth);
        let mean = div(&total, &count);
        drop(total);
        drop((counted, count));
        mean
    };
    let plain = mul_cpp_scalar(&nll);
    let loss = add(&plain, &mul_cpp_scalar(&mean));
    drop((mean, ignored, smooth, input, nll));
    loss
}

/// `LabelSmoother` (`transformers/trainer_pt_utils.py`) on the logits a model returned without a loss; `shift` where
/// they predict the next token. `labels` has a label for every row of the logits.
pub fn label_smoother(logits: &Tensor, labels: &Tensor, shift: bool) -> Tensor {
    let cx = logits.cx();
    let (logits, labels) = if shift {
        let last = logits.size(1) - 1;
        (contiguous(&whole(&narrow(logits, 1, last))), contiguous(&narrow_from(labels, 1, 1, last)))
    } else {
        (logits.clone(), labels.clone())
    };
    // log_softmax is on autocast's float32 list, but this runs after autocast.
    let log_probs = neg(&log_softmax(&logits));
    let one_each = unsqueeze(&labels, -1);
    drop(labels);
    let padding = cx.launch(Op::EqScalar, &[&one_each]).make_sizes(one_each.dims(), DType::Bool);
    let labels = cx.launch(Op::Clamp, &[&one_each]).make_sizes(one_each.dims(), DType::Int64);
    drop(one_each);
    let nll = gather_classes(&log_probs, &labels);
    let smooth = sum_classes(&log_probs, DType::Float32, true);
    let nll = masked_fill_in_place(nll, &padding);
    let smooth = masked_fill_in_place(smooth, &padding);
    let count = {
        let long = cx.launch(Op::ToCopy, &[&padding]).make_sizes(padding.dims(), DType::Int64);
        let sum = reduction(Reduction::Sum, &long, &[], DType::Int64);
        drop(long);
        let count = cx.launch(Op::RsubScalar, &[&sum]).make_sizes(&[], DType::Int64);
        drop(sum);
        count
    };
    let nll = {
        let sum = sum_all(&nll);
        let mean = div(&sum, &count);
        drop(sum);
        drop(nll);
        mean
    };
    let smooth = {
        let sum = sum_all(&smooth);
        let numbers = cx.launch(Op::MulTensor, &[&count]).make_sizes(&[], DType::Int64);
        let mean = div(&sum, &numbers);
        drop((sum, numbers));
        drop(smooth);
        mean
    };
    let plain = mul_scalar(&nll);
    let loss = add(&plain, &mul_scalar(&smooth));
    drop((logits, log_probs, labels, padding));
    loss
}

/// The logits a model returned as `accelerate` hands them on after autocast: in float32 (`convert_outputs_to_fp32`).
pub fn converted(logits: Tensor) -> Tensor {
    to(&logits, DType::Float32)
}

/// `x.sum(-1, keepdim, dtype=dtype)`; its gradient is a view.
fn sum_classes(x: &Tensor, dtype: DType, keepdim: bool) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::SumBackward1, &[x]);
    let kept = x.geometry().narrowed(-1, 1);
    let sizes = if keepdim { kept } else { kept.squeezed(-1) };
    let mut out = reduction(Reduction::SumDimIntList, x, sizes.dims(), dtype);
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| {
        let grad = g.grad().geometry();
        let grad = if keepdim { grad.clone() } else { grad.unsqueezed(-1) };
        grads([Some(g.grad().view_as(grad.expanded(from.dims())))])
    });
    out
}

/// `x.gather(-1, index)` with one index a row; keeps x and the index. `gather_backward` scatters into zeros of x's size.
fn gather_classes(x: &Tensor, index: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), GradFn::GatherBackward0, &[x]);
    let saved = [tape.save(index), tape.save(x)];
    let mut out = x
        .cx()
        .launch(Op::Gather, &[index])
        .reads(index.numel().saturating_mul(x.dtype().size()))
        .of(x.dtype())
        .make_sizes(index.dims(), x.dtype());
    tape.record([&mut out], move |g| {
        let (index, x) = (saved[0].unpack(), saved[1].unpack());
        let zeros = g.make(Op::NewZeros, &[], Geometry::contiguous(x.dims()), g.grad().dtype());
        drop(g.cx().launch(Op::ScatterAddInPlace, &[g.grad(), &index, g.grad()]).over(g.grad()));
        grads([Some(zeros)])
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{cross_entropy_smoothed, label_smoother};
    use crate::ops::neg;
    use crate::tensor::testing::{activation, activation_of, alive, backward_of, forward, input_of, made, watch};
    use crate::tensor::{DType, Kind};

    /// The mean over the classes is a second branch on the log-softmax, whose gradient is as large as the logits.
    #[test]
    fn cross_entropy_with_smoothed_labels_has_two_branches() {
        let cx = forward();
        let logits = neg(&activation(&cx, &[16, 100]));
        let loss = cross_entropy_smoothed(&logits, &input_of(&cx, &[16], DType::Int64));
        drop(logits);
        let large: Vec<String> = alive(&cx, Kind::Saved).into_iter().filter(|s| s.contains("100")).collect();
        assert_eq!(large, ["_log_softmax [16, 100] float32"], "smoothing keeps nothing more of this size");
        let events = backward_of(loss);
        let large: Vec<&str> =
            made(&events).into_iter().filter(|op| op.contains("backward") || *op == "add.Tensor").collect();
        assert_eq!(large, ["nll_loss_backward", "add.Tensor", "_log_softmax_backward_data"], "{events:?}");
    }

    /// `log_probs = -log_softmax(logits)` is kept by `gather` beside the log-softmax itself.
    #[test]
    fn the_trainers_smoother_keeps_two_copies_of_the_logits() {
        let cx = forward();
        let logits = neg(&activation(&cx, &[2, 9, 100]));
        let labels = input_of(&cx, &[2, 9], DType::Int64);
        let loss = label_smoother(&logits, &labels, true);
        drop(logits);
        let large: Vec<String> = alive(&cx, Kind::Saved).into_iter().filter(|s| s.contains("100")).collect();
        assert_eq!(large, ["_log_softmax [2, 8, 100] float32", "neg [2, 8, 100] float32"]);
        let events = backward_of(loss);
        let large = |e: &&String| e.starts_with('+') && e.contains("100]") && !e.contains("9, 100");
        let made: Vec<&str> = events.iter().filter(large).filter_map(|e| e[1..].split(' ').next()).collect();
        assert_eq!(made, ["new_zeros", "add.Tensor", "neg", "_log_softmax_backward_data"]);
        assert!(events.contains(&"+slice_backward [2, 9, 100] float32".to_owned()));
    }

    /// Without a shift there is nothing to cut off, and half logits are summed in float32.
    #[test]
    fn the_smoother_of_a_classifier_takes_the_logits_as_they_are() {
        let cx = forward();
        let logits = activation_of(&cx, &[4, 10], DType::BFloat16);
        let labels = input_of(&cx, &[4], DType::Int64);
        let (events, loss) = watch(&cx, || label_smoother(&logits, &labels, false));
        assert_eq!(events[..2], ["+_log_softmax [4, 10] bfloat16", "+neg [4, 10] bfloat16"]);
        assert!(events.contains(&"+sum.dim_IntList [4, 1] float32".to_owned()), "{events:?}");
        assert_eq!(loss.dtype(), DType::Float32);
    }
}
