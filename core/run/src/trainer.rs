//! What the loop of transformers' Trainer holds beside one written by hand: `_run_epoch`, `get_batch_samples` and `training_step` of
//! `transformers/trainer.py`, `backward` of `accelerate/accelerator.py`.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_families::Model;
use plimsoll_torch::ops::{Pointwise, Reduction};
use plimsoll_torch::optim::Clipped;
use plimsoll_torch::tensor::{Context, DType, Tensor};
use plimsoll_torch::{Batch, ops};

/// The names of its loop.
#[derive(Debug)]
pub struct Trainer {
    /// `_tr_loss`: the losses, summed on the card until they are logged.
    losses: Tensor,
    /// `batch_samples`: every micro-batch of the step.
    batches: Vec<Batch>,
    /// `num_items_in_batch`: how many labels they have.
    items: Option<Tensor>,
    /// `grad_norm`.
    norm: Option<Tensor>,
}

impl Trainer {
    /// Before the first batch.
    pub fn new(cx: &Rc<Context>) -> Self {
        let losses = ops::fill(cx, ops::Fill::ToCopy, &[], DType::Float32);
        Self { losses, batches: Vec::new(), items: None, norm: None }
    }

    /// A micro-batch, counted from one; the first of a step brings all `count` of them.
    pub fn batch(&mut self, cx: &Context, model: &dyn Model, micro_batch: u64, count: u64) -> Batch {
        if micro_batch == 1 {
            self.fetch(cx, model, count);
        }
        let index = usize::try_from(micro_batch - 1).unwrap_or(usize::MAX);
        self.batches.get(index).cloned().unwrap_or_else(|| model.batch())
    }

    /// `get_batch_samples`: the last step's are let go of when these are there and counted, from the last to the first as lists
    /// do; the very last the loop still calls `inputs`.
    fn fetch(&mut self, cx: &Context, model: &dyn Model, count: u64) {
        let mut batches = Vec::new();
        while (batches.len() as u64) < count && !cx.exhausted() {
            batches.push(model.batch());
        }
        let shifted = cx.machine().rules.has(&rules::TRAINER_SHIFTS_LABELS);
        let items = ops::count_labels(batches.iter().map(Batch::labels), shifted);
        while let Some(last) = self.batches.pop() {
            drop(last);
        }
        self.batches = batches;
        self.items = items;
    }

    /// What `compute_loss` makes of the model's loss.
    pub fn loss(&self, loss: Tensor) -> Tensor {
        let averages = loss.cx().machine().rules.has(&rules::TRAINER_AVERAGES);
        if averages { ops::scale_in_place(loss) } else { loss }
    }

    /// `compute_loss` of TRL's SFTTrainer (`trainer/sft_trainer.py` of 1.16) on what its fused output head gave: loss, log-probabilities,
    /// entropies, which labels are the likeliest, which count.
    pub fn tiled_loss(&self, outputs: &[Tensor], attention: Option<&Tensor>) -> Option<Tensor> {
        let [_, log_probs, entropy, is_top1, mask] = outputs else { return None };
        let per_token_loss = ops::neg(log_probs);
        let mut loss = {
            let total = ops::sum_all(&per_token_loss);
            let count = ops::clamped_count(self.items.clone()?);
            ops::div(&total, &count)
        };
        // How many processes there are.
        if loss.cx().machine().rules.has(&rules::TRAINER_AVERAGES) {
            loss = ops::mul_scalar(&loss);
        }
        // What is logged: each is summed over the cards, of which there is one.
        let summed = |x: &Tensor| {
            let dtype = if x.dtype() == DType::Float32 { DType::Float32 } else { DType::Int64 };
            let here = ops::reduction(Reduction::Sum, x, &[], dtype);
            ops::reduction(Reduction::Sum, &here, &[], dtype)
        };
        let [num_valid, entropy_sum, num_correct] = [mask, &entropy.detach(), is_top1].map(summed);
        for sum in [&entropy_sum, &num_correct] {
            drop(ops::each(Pointwise::GtScalar, &num_valid, DType::Bool));
            drop(ops::pointwise(Pointwise::DivTensor, sum, &[&num_valid], &[], DType::Float32));
        }
        if let Some(attention) = attention {
            drop(summed(attention));
        }
        drop((num_valid, entropy_sum, num_correct, per_token_loss));
        Some(loss)
    }

    /// A micro-batch's loss is looked at and added.
    pub fn add(&self, loss: &Tensor) {
        ops::is_a_number(loss);
        ops::accumulate(&self.losses, loss);
    }

    /// Before gradients are clipped. Whether they are, where nobody asked for it.
    pub fn clips(&mut self, cx: &Context) -> bool {
        let takes = cx.machine().rules.has(&rules::TRAINER_TAKES_NORMS);
        if takes {
            self.norm = None;
        }
        takes
    }

    /// After they were.
    pub fn clipped(&mut self, clipped: &mut Clipped) {
        self.norm = clipped.total.take();
    }
}

/// `estimate_loss` of nanoGPT's `train.py`: forwards without a graph, of two splits. From the second on each does what the one before
/// did; two of each are run.
pub fn evaluate(cx: &Rc<Context>, model: &dyn Model, autocast: Option<DType>) {
    let (mut batch, mut outputs) = (None, None);
    for _ in 0..4 {
        // `X, Y = get_batch(split)`: the last are let go of when both are there.
        let batch = batch.insert(model.batch());
        cx.no_grad(|| {
            cx.with_autocast(autocast, || outputs = Some(model.forward(batch)));
        });
    }
    drop(batch);
    drop(outputs);
}
