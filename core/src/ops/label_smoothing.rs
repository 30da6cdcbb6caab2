//! Cross-entropy with smoothed labels: PyTorch's own, and that of transformers' Trainer.

use super::cast::{full_precision, to};
use super::creation::fresh;
use super::elementwise::{add, mul_scalar, neg};
use super::loss::nll_loss;
use super::masked_fill::masked_fill_in_place;
use super::similarity::div;
use super::softmax::log_softmax;
use super::view::{contiguous, narrow, unsqueeze};
use crate::tensor::{DType, Geometry, Tape, Tensor, grads};

/// `cross_entropy(logits [N, classes], targets [N], label_smoothing=p)`, mean (`cross_entropy_loss_label_smoothing` in
/// `aten/src/ATen/native/LossNLL.cpp`).
pub fn cross_entropy_smoothed(logits: &Tensor, targets: &Tensor) -> Tensor {
    let cx = logits.cx();
    let input = log_softmax(logits);
    let nll = nll_loss(&full_precision(&input), targets);
    let smooth = {
        let sum =
            sum_classes(&input, if cx.autocast_dtype().is_some() { DType::Float32 } else { input.dtype() }, false);
        neg(&sum)
    };
    let ignored = fresh(cx, "eq.Scalar", targets.dims(), DType::Bool);
    let smooth = masked_fill_in_place(smooth, &ignored);
    let total = sum_all(&smooth);
    let count = {
        let ignored = fresh(cx, "sum", &[], DType::Int64);
        let count = fresh(cx, "rsub.Scalar", &[], DType::Int64);
        drop(ignored);
        count
    };
    let mean = div(&total, &count);
    drop((total, count, ignored, smooth, input));
    let plain = mul_scalar(&nll);
    add(&plain, &mul_scalar(&mean))
}

/// `LabelSmoother` (`transformers/trainer_pt_utils.py`) on the logits a model returned without a loss; `shift` where
/// they predict the next token. `labels` has a label for every row of the logits.
pub fn label_smoother(logits: &Tensor, labels: &Tensor, shift: bool) -> Tensor {
    let cx = logits.cx();
    let (logits, labels) = if shift {
        let last = logits.size(1) - 1;
        (contiguous(&narrow(logits, 1, last)), contiguous(&narrow(labels, 1, last)))
    } else {
        (logits.clone(), labels.clone())
    };
    // log_softmax is on autocast's float32 list, but this runs after autocast.
    let log_probs = neg(&log_softmax(&logits));
    let one_each = unsqueeze(&labels, -1);
    drop(labels);
    let padding = fresh(cx, "eq.Scalar", one_each.dims(), DType::Bool);
    let labels = fresh(cx, "clamp", one_each.dims(), DType::Int64);
    drop(one_each);
    let nll = gather_classes(&log_probs, &labels);
    let smooth = sum_classes(&log_probs, DType::Float32, true);
    let nll = masked_fill_in_place(nll, &padding);
    let smooth = masked_fill_in_place(smooth, &padding);
    let count = {
        let long = fresh(cx, "_to_copy", padding.dims(), DType::Int64);
        let sum = fresh(cx, "sum", &[], DType::Int64);
        drop(long);
        let count = fresh(cx, "rsub.Scalar", &[], DType::Int64);
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
        let numbers = fresh(cx, "mul.Tensor", &[], DType::Int64);
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

/// `x.sum()`; its gradient is a view.
fn sum_all(x: &Tensor) -> Tensor {
    let tape = Tape::new(x.cx(), "SumBackward0", &[x]);
    let mut out = x.cx().empty_sizes("sum", &[], x.dtype());
    let from = x.geometry().clone();
    tape.record([&mut out], move |g| grads([Some(g.grad().view_as(g.grad().geometry().expanded(from.dims())))]));
    out
}

/// `x.sum(-1, keepdim, dtype=dtype)`; its gradient is a view.
fn sum_classes(x: &Tensor, dtype: DType, keepdim: bool) -> Tensor {
    let tape = Tape::new(x.cx(), "SumBackward1", &[x]);
    let kept = x.geometry().narrowed(-1, 1);
    let sizes = if keepdim { kept } else { kept.squeezed(-1) };
    let mut out = x.cx().empty_sizes("sum.dim_IntList", sizes.dims(), dtype);
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
    let tape = Tape::new(x.cx(), "GatherBackward0", &[x]);
    let saved = [tape.save(x), tape.save(index)];
    let mut out = x.cx().empty_sizes("gather", index.dims(), x.dtype());
    tape.record([&mut out], move |g| {
        let (x, _index) = (saved[0].unpack(), saved[1].unpack());
        grads([Some(g.empty("new_zeros", Geometry::contiguous(x.dims()), g.grad().dtype()))])
    });
    out
}
