//! What transformers' Trainer counts and asks of numbers on the card.

use super::inside::Scratch;
use super::plain::{Reduction, reduction};
use super::view::narrow;
use crate::Op;
use crate::tensor::{DType, Tensor};

/// `sum(labels.ne(-100).sum() for labels in ...)`, where `shifted` each without the first of a row (`_get_num_items_in_batch` of
/// `transformers/trainer.py`). Nothing of no labels.
pub fn count_labels<'l>(labels: impl Iterator<Item = &'l Tensor>, shifted: bool) -> Option<Tensor> {
    let mut total = None;
    for labels in labels {
        let one = count(labels, shifted);
        // Python begins with the number 0: the first sum is a new tensor too. What came out last goes before what was added.
        let sum = one.cx().launch(Op::AddTensor, &[&one]).make_sizes(&[], DType::Int64);
        drop(total.replace(sum));
        drop(one);
    }
    total
}

fn count(labels: &Tensor, shifted: bool) -> Tensor {
    let cx = labels.cx();
    // labels[..., 1:]
    let counted = if shifted { narrow(labels, -1, labels.size(-1).saturating_sub(1)) } else { labels.clone() };
    let given = cx.launch(Op::NeScalar, &[&counted]).make_sizes(counted.dims(), DType::Bool);
    reduction(Reduction::Sum, &given, &[], DType::Int64)
}

/// `count.clamp(min=1)` of a number of labels.
pub fn clamped_count(count: Tensor) -> Tensor {
    count.cx().launch(Op::Clamp, &[&count]).make_sizes(count.dims(), count.dtype())
}

/// `torch.isnan(x) or torch.isinf(x)` of a number that is neither: `x != x`, then `x.abs() == inf`.
pub fn is_a_number(x: &Tensor) {
    let cx = x.cx();
    let answer = |op, of: &Tensor| drop(cx.launch(op, &[of]).make_sizes(x.dims(), DType::Bool));
    answer(Op::NeTensor, x);
    let absolute = cx.launch(Op::Abs, &[x]).make_sizes(x.dims(), x.dtype());
    answer(Op::EqScalar, &absolute);
    drop(absolute);
}

/// How many of a batch are right, at once and among the first five, as shares: `accuracy` of torchvision's
/// `references/classification/utils.py`, of which two numbers stay.
pub fn accuracies(logits: &Tensor) -> [Tensor; 2] {
    const MOST: u64 = 5;
    let (cx, samples) = (logits.cx(), logits.size(0));
    let number = |op, of: &Tensor| cx.launch(op, &[of]).make_sizes(&[], DType::Float32);
    let values = cx.launch(Op::Topk, &[logits]).make_sizes(&[samples, MOST], logits.dtype());
    let chosen = cx.launch(Op::Topk, &[]).make_sizes(&[samples, MOST], DType::Int64);
    let right = cx.launch(Op::EqTensor, &[&chosen]).make_sizes(&[MOST, samples], DType::Bool);
    // `correct_k`, a name until the next.
    let share = |rows: u64, last: Option<Tensor>| {
        // The first row lies together; all of them do not: the choice was transposed, and `flatten` copies.
        let flat = (rows > 1).then(|| cx.launch(Op::Clone, &[&right]).make_sizes(&[rows * samples], DType::Bool));
        let count = number(Op::Sum, flat.as_ref().unwrap_or(&right));
        drop(Scratch::converted(cx, Op::Sum, &[rows * samples], DType::Float32));
        drop((flat, last));
        (number(Op::MulTensor, &count), count)
    };
    let (first, count) = share(1, None);
    let (five, count) = share(MOST, Some(count));
    drop((values, chosen, right, count));
    [first, five]
}

#[cfg(test)]
mod tests {
    use super::{count_labels, is_a_number};
    use crate::tensor::DType;
    use crate::tensor::testing::{forward, input, input_of, watch};

    #[test]
    fn labels_are_counted_one_micro_batch_after_the_other() {
        let cx = forward();
        let labels = [input_of(&cx, &[2, 8], DType::Int64), input_of(&cx, &[2, 8], DType::Int64)];
        let (events, total) = watch(&cx, || count_labels(labels.iter(), true));
        assert_eq!(total.unwrap().dims(), [0; 0]);
        let one = ["+ne.Scalar [2, 7] bool", "+sum [] int64", "-ne.Scalar [2, 7] bool", "+add.Tensor [] int64"];
        let told: Vec<&str> = events.iter().map(String::as_str).filter(|e| !e.contains("sum [2, 7]")).collect();
        assert_eq!(told, [&one[..], &["-sum [] int64"], &one, &["-add.Tensor [] int64", "-sum [] int64"]].concat());
        assert!(count_labels([].into_iter(), true).is_none());
    }

    #[test]
    fn a_loss_that_is_asked_leaves_nothing() {
        let cx = forward();
        let loss = input(&cx, &[]);
        let (events, ()) = watch(&cx, || is_a_number(&loss));
        let made: Vec<&String> = events.iter().filter(|e| e.starts_with('+')).collect();
        assert_eq!(made, ["+ne.Tensor [] bool", "+abs [] float32", "+eq.Scalar [] bool"]);
        assert_eq!(events.len(), 6, "{events:?}");
    }
}
