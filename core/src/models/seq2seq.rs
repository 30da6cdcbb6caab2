//! What transformers' encoder-decoders share around their stacks.

use std::rc::Rc;

use super::{Output, Plan};
use crate::Result;
use crate::nn::Linear;
use crate::ops;
use crate::scenario::AttentionMask;
use crate::tensor::{Context, DType, Tensor};

/// How many tokens the encoder and the decoder read.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// `input.seq`.
    pub source: u64,
    /// `input.target_seq`; as long as the source where it is not given.
    pub target: u64,
}

impl Lengths {
    /// Of the plan.
    ///
    /// # Errors
    /// When the scenario has no sequence.
    pub fn read(plan: &Plan) -> Result<Self> {
        let source = plan.seq()?;
        Ok(Self { source, target: plan.input.target_seq.unwrap_or(source) })
    }
}

/// `input_ids`, `labels` and, where one is given, the encoder's attention mask: int64.
pub fn batch(cx: &Rc<Context>, plan: &Plan, lengths: Lengths) -> Vec<Tensor> {
    let tokens = |n| ops::empty(cx, &[plan.input.batch, n], DType::Int64);
    let mut batch = vec![tokens(lengths.source), tokens(lengths.target)];
    if plan.input.attention_mask != AttentionMask::None {
        batch.push(tokens(lengths.source));
    }
    batch
}

/// `shift_tokens_right`: the decoder's input ids, made from the labels.
pub fn shift_right(labels: &Tensor) -> Tensor {
    let cx = labels.cx();
    let (batch, seq) = (labels.size(0), labels.size(1));
    let shifted = ops::fresh(cx, "new_zeros", &[batch, seq], DType::Int64);
    if seq > 1 {
        drop(ops::fresh(cx, "clone", &[batch, seq - 1], DType::Int64));
    }
    drop(ops::fresh(cx, "eq.Scalar", &[batch, seq], DType::Bool));
    shifted
}

/// The loss of the logits, and what a `Seq2SeqLMOutput` holds beside it: the logits and the encoder's last hidden state.
pub fn output(logits: Tensor, labels: &Tensor, encoded: Tensor) -> Output {
    let vocab = logits.size(-1);
    let rows = logits.numel() / vocab.max(1);
    let loss = ops::cross_entropy(&ops::view(&logits, &[rows, vocab]), &ops::view(labels, &[rows]));
    Output { held: vec![loss.clone(), logits, encoded], loss }
}

/// `lm_head`, tied to the token embedding or with a weight of its own.
pub fn head(place: &crate::nn::Scope, weight: &Tensor, tied: bool) -> Linear {
    if tied { Linear::tied(place, weight) } else { Linear::head(place, weight.size(1), weight.size(0)) }
}
