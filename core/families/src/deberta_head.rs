//! DeBERTa's heads: masked tokens, the old way and the new one, and classification.

use plimsoll_ground::Result;
use plimsoll_scenario::Task;
use plimsoll_torch::nn::{Activation, Embedding, LayerNorm, Linear, Scope};
use plimsoll_torch::ops::{self, Pointwise, Rearrangement, Reduction};
use plimsoll_torch::tensor::{DType, ModuleId, Tensor};

use super::bert::Transform;
use super::classification;
use super::config::Config;
use super::deberta_attention::{self, Disentangled};
use super::{Output, Plan};

/// `ContextPooler`, and the classifier behind it.
#[derive(Debug)]
pub struct Classifier {
    pooler_dropout: (f64, ModuleId),
    dense: Linear,
    act: Activation,
    classifier: Linear,
    dropout: (f64, ModuleId),
    /// The config names its `problem_type`; else only samples with a label are looked at.
    named: bool,
    pooler: ModuleId,
}

/// What stands on the last hidden state.
#[derive(Debug)]
pub enum Head {
    /// `LegacyDebertaV2OnlyMLMHead`.
    Legacy(Box<Transform>, Box<Linear>, ModuleId),
    /// `DebertaV2OnlyMLMHead`, which is handed the word embeddings.
    MaskedLm(Box<Transform>, [Tensor; 2], ModuleId),
    /// `DebertaV2ForSequenceClassification`.
    SequenceClassification(Box<Classifier>),
}

impl Head {
    /// Of the plan's task.
    ///
    /// # Errors
    /// Activations that are not known, sizes that contradict one another.
    pub fn new(
        scope: &Scope,
        config: &Config<'_>,
        plan: &Plan,
        sizes: &Disentangled,
        words: &Embedding,
    ) -> Result<Self> {
        let hidden = sizes.hidden;
        if plan.task == Task::SequenceClassification {
            return Ok(Self::SequenceClassification(Box::new(Classifier::new(scope, config, plan, sizes)?)));
        }
        let act = config.text("hidden_act", "gelu")?;
        let unknown = || super::unknown_activation(config, "hidden_act", act);
        let width = words.weight().size(1);
        if config.flag("legacy", true)? {
            let predictions = scope.child("cls").child("predictions");
            let place = predictions.place();
            let transform =
                Transform::new(&predictions.child("transform"), [hidden, width], act).ok_or_else(unknown)?;
            let tied = config.flag("tie_word_embeddings", true)?;
            let decoder = classification::decoder(&predictions, "decoder", place, words, tied);
            return Ok(Self::Legacy(Box::new(transform), Box::new(decoder), predictions.module()));
        }
        if width != hidden {
            let hint = format!("give {hidden}, or legacy = true");
            return Err(config.error("embedding_size", "this head multiplies with the word embeddings", hint));
        }
        let lm_head = scope.child("lm_predictions").child("lm_head");
        let place = lm_head.place();
        let dense = Linear::biased_head(&lm_head.child("dense"), hidden, hidden, None);
        let act = Activation::new(&lm_head.child("transform_act_fn"), act).ok_or_else(unknown)?;
        let norm = LayerNorm::new(&lm_head.child("LayerNorm"), hidden, true);
        let bias = lm_head.own_parameter(place, &[words.weight().size(0)]);
        let transform = Transform { dense, act, norm, module: lm_head.module() };
        Ok(Self::MaskedLm(Box::new(transform), [words.weight().clone(), bias], lm_head.module()))
    }

    /// What the model returns for the last hidden state.
    pub fn output(&self, hidden: &Tensor, labels: &Tensor) -> Output {
        let cx = hidden.cx();
        let logits = match self {
            Self::Legacy(transform, decoder, module) => cx.within(*module, || {
                let transformed = transform.forward(hidden);
                decoder.forward(&transformed)
            }),
            Self::MaskedLm(transform, [weight, bias], module) => cx.within(*module, || {
                let transformed = transform.forward(hidden);
                cx.read(weight);
                let product = ops::matmul(&transformed, &ops::t(weight));
                ops::add(&product, bias)
            }),
            Self::SequenceClassification(head) => return head.output(hidden, labels),
        };
        let loss = classification::loss(&logits, labels);
        Output { held: vec![loss.clone(), logits], loss }
    }
}

impl Classifier {
    fn new(scope: &Scope, config: &Config<'_>, plan: &Plan, sizes: &Disentangled) -> Result<Self> {
        let hidden = sizes.hidden;
        if config.size("pooler_hidden_size", hidden)? != hidden {
            return Err(config.error("pooler_hidden_size", "the pooler is as wide as the model", "leave it out"));
        }
        let pooler = scope.child("pooler");
        let act = config.text("pooler_hidden_act", "gelu")?;
        Ok(Self {
            pooler_dropout: (config.probability("pooler_dropout", 0.0)?, pooler.child("dropout").module()),
            dense: Linear::new(&pooler.child("dense"), hidden, hidden, true),
            act: Activation::new(&pooler, act)
                .ok_or_else(|| super::unknown_activation(config, "pooler_hidden_act", act))?,
            classifier: {
                let labels = classification::num_labels(config, plan.task)?;
                Linear::new(&scope.child("classifier"), hidden, labels, true)
            },
            dropout: (config.probability("cls_dropout", sizes.hidden_dropout)?, scope.child("dropout").module()),
            named: config.has("problem_type"),
            pooler: pooler.module(),
        })
    }

    fn output(&self, hidden: &Tensor, labels: &Tensor) -> Output {
        let cx = hidden.cx();
        let dropout = |x: &Tensor, (p, module)| cx.within(module, || deberta_attention::dropout(x, p));
        let mut pooled = cx.within(self.pooler, || {
            let mut token = ops::first(hidden);
            token = dropout(&token, self.pooler_dropout);
            let mut pooled = self.dense.forward(&token);
            pooled = self.act.forward(&pooled);
            pooled
        });
        pooled = dropout(&pooled, self.dropout);
        let logits = self.classifier.forward(&pooled);
        let loss = if self.named { classification::loss(&logits, labels) } else { labelled_loss(&logits, labels) };
        drop(pooled);
        Output { held: vec![loss.clone(), logits], loss }
    }
}

/// The loss of the samples that have a label, in float32.
fn labelled_loss(logits: &Tensor, labels: &Tensor) -> Tensor {
    let (cx, batch) = (logits.cx(), labels.size(0));
    if classification::is_outside(cx) {
        return ops::no_loss(logits);
    }
    let rows = {
        let labelled = ops::pointwise(Pointwise::GeScalar, labels, &[], &[batch], DType::Bool);
        ops::reduction(Reduction::Nonzero, &labelled, &[batch, 1], DType::Int64)
    };
    let chosen = ops::gather(logits, &ops::expand(&rows, &[batch, logits.size(1)]));
    let targets = ops::rearrangement(cx, Rearrangement::Gather, &[batch], DType::Int64);
    classification::loss(&ops::to(&chosen, DType::Float32), &targets)
}
