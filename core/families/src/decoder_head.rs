//! What stands on a decoder's last hidden state: logits over the vocabulary, or scores of the last token.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Task;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{Embedding, Linear, Scope};
use plimsoll_torch::ops::{self, Fill, Pointwise, Reduction};
use plimsoll_torch::tensor::{Context, DType, Tensor};

use super::causal_lm::{Generated, OwnLoss, Readout};
use super::config::Config;
use super::{Output, Plan, causal_lm, classification};

/// The head of a decoder.
#[derive(Debug)]
pub enum DecoderHead {
    /// `...ForCausalLM`.
    CausalLm {
        /// `lm_head`.
        lm_head: Linear,
        /// What becomes of its logits.
        readout: Readout,
        /// A loss of the model's own, in older versions.
        own_loss: OwnLoss,
        /// Of which positions a generation has logits made.
        generated: Generated,
    },
    /// `...ForSequenceClassification`, most of them transformers' `GenericForSequenceClassification`.
    SequenceClassification {
        /// `score`.
        score: Linear,
        /// Whether a padding token is known, so that the last real one is looked for.
        pads: bool,
    },
}

impl DecoderHead {
    /// The head of the plan's task, on states as wide as the word embeddings. `pads` says whether the family's config
    /// class names a padding token by itself.
    ///
    /// # Errors
    /// What [`classification::num_labels`] refuses.
    pub fn new(
        scope: &Scope,
        config: &Config<'_>,
        plan: &Plan,
        (words, pads): (&Embedding, bool),
        lm_head: impl FnOnce() -> Linear,
    ) -> Result<Self> {
        if plan.task != Task::SequenceClassification {
            let software = scope.cx().machine().rules;
            let own_loss = OwnLoss::of(config.model_type(), software);
            let generated = Generated::of(config.model_type(), software);
            return Ok(Self::CausalLm { lm_head: lm_head(), readout: Readout::Plain, own_loss, generated });
        }
        let labels = classification::num_labels(config, plan.task)?;
        let named = config.has("pad_token_id") || (pads && !config.mentions("pad_token_id"));
        // Without one transformers takes single samples only; whoever trains on more has set it.
        let pads = named || plan.input.batch > 1;
        let score = Linear::new(&scope.child("score"), words.weight().size(1), labels, false);
        Ok(Self::SequenceClassification { score, pads })
    }

    /// With logits over the vocabulary that something is done to.
    pub fn read_out(self, readout: Readout) -> Self {
        match self {
            Self::CausalLm { lm_head, own_loss, generated, .. } => {
                Self::CausalLm { lm_head, readout, own_loss, generated }
            }
            scores @ Self::SequenceClassification { .. } => scores,
        }
    }

    /// One micro-batch: ids, labels (one a token, or one a sample) and the attention mask where one is given.
    pub fn batch(&self, cx: &Rc<Context>, plan: &Plan, seq: u64) -> Batch {
        match self {
            Self::CausalLm { .. } => causal_lm::batch(cx, plan, seq),
            Self::SequenceClassification { .. } => super::bert_encoder::batch(cx, plan, seq),
        }
    }

    /// Whether it makes text.
    pub const fn generates(&self) -> bool {
        matches!(self, Self::CausalLm { .. })
    }

    /// What a generation asks of the last hidden state: the logits of the last position.
    pub fn last_logits(&self, hidden: Tensor) -> Tensor {
        match self {
            Self::CausalLm { lm_head, readout, generated, .. } => {
                causal_lm::last_logits(hidden, lm_head, (*readout, *generated))
            }
            Self::SequenceClassification { score, .. } => {
                causal_lm::last_logits(hidden, score, (Readout::Plain, Generated::Last))
            }
        }
    }

    /// What the model returns for the last hidden state.
    pub fn output(&self, hidden: Tensor, ids: &Tensor, labels: &Tensor) -> Output {
        match self {
            Self::CausalLm { lm_head, readout, own_loss, generated } => {
                causal_lm::output(hidden, lm_head, labels, (*own_loss, *readout, *generated))
            }
            Self::SequenceClassification { score, pads } => {
                let logits = score.forward(&hidden);
                let (pooled, named) = last_token(&logits, ids, *pads);
                let loss = classification::loss(&pooled, labels);
                drop((hidden, logits, named));
                Output { held: vec![loss.clone(), pooled], loss }
            }
        }
    }
}

/// `logits[torch.arange(batch), last_non_pad_token]`, and what the forward's names hold beside it.
fn last_token(logits: &Tensor, ids: &Tensor, pads: bool) -> (Tensor, Vec<Tensor>) {
    let cx = logits.cx();
    let (batch, seq) = (ids.size(0), ids.size(1));
    if !pads {
        let last = ops::select(logits, 1);
        return (ops::index(&last, &[&ops::arange(cx, batch)]), Vec::new());
    }
    if !cx.machine().rules.has(&rules::LAST_TOKEN_BY_PLACE) {
        // torch.eq(input_ids, pad_token_id).int().argmax(-1) - 1, and its remainder
        let first_pad = {
            let pads = ops::pointwise(Pointwise::EqScalar, ids, &[], &[batch, seq], DType::Bool);
            let marks = ops::pointwise(Pointwise::ToCopy, &pads, &[], &[batch, seq], DType::Int32);
            drop(pads);
            ops::reduction(Reduction::Argmax, &marks, &[batch], DType::Int64)
        };
        let mut sequence_lengths = ops::each(Pointwise::SubTensor, &first_pad, DType::Int64);
        drop(first_pad);
        sequence_lengths = ops::each(Pointwise::RemainderScalar, &sequence_lengths, DType::Int64);
        return (ops::index(logits, &[&ops::arange(cx, batch), &sequence_lengths]), vec![sequence_lengths]);
    }
    let non_pad_mask = {
        let differs = ops::pointwise(Pointwise::NeScalar, ids, &[], &[batch, seq], DType::Bool);
        ops::pointwise(Pointwise::ToCopy, &differs, &[], &[batch, seq], DType::Int32)
    };
    let token_indices = ops::fill(cx, Fill::Arange, &[seq], DType::Int32);
    let last_non_pad_token = {
        let product =
            ops::pointwise(Pointwise::MulTensor, &token_indices, &[&non_pad_mask], &[batch, seq], DType::Int32);
        ops::reduction(Reduction::Argmax, &product, &[batch], DType::Int64)
    };
    let pooled = ops::index(logits, &[&ops::arange(cx, batch), &last_non_pad_token]);
    (pooled, vec![non_pad_mask, token_indices, last_non_pad_token])
}
