//! BERT (transformers `models/bert/modeling_bert.py`).

use std::rc::Rc;

use plimsoll_ground::Result;
use plimsoll_scenario::Task;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{Activation, Embedding, LayerNorm, Linear, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{Context, ModuleId, Tensor};

use super::bert_encoder::{Embeddings, Encoder, Sizes, batch, check_positions};
use super::config::Config;
use super::{Model, Output, Plan, classification};

/// `BertPooler`: the first token's state through a linear and a tanh.
#[derive(Debug)]
struct Pooler {
    dense: Linear,
    modules: [ModuleId; 2],
}

impl Pooler {
    fn new(scope: &Scope, hidden: u64) -> Self {
        Self {
            dense: Linear::new(&scope.child("dense"), hidden, hidden, true),
            modules: [scope.module(), scope.child("activation").module()],
        }
    }

    fn forward(&self, hidden: &Tensor) -> Tensor {
        let cx = hidden.cx();
        cx.within(self.modules[0], || {
            let pooled = self.dense.forward(&ops::first(hidden));
            cx.within(self.modules[1], || ops::tanh(&pooled))
        })
    }
}

/// `BertPredictionHeadTransform`.
#[derive(Debug)]
pub struct Transform {
    /// `dense`.
    pub dense: Linear,
    /// `transform_act_fn`.
    pub act: Activation,
    /// `LayerNorm`.
    pub norm: LayerNorm,
    /// Where it stands.
    pub module: ModuleId,
}

impl Transform {
    /// From and to that many features; `None` for an unknown activation.
    pub fn new(scope: &Scope, [inputs, outputs]: [u64; 2], act: &str) -> Option<Self> {
        let dense = Linear::new(&scope.child("dense"), inputs, outputs, true);
        let act = Activation::new(&scope.child("transform_act_fn"), act)?;
        let norm = LayerNorm::new(&scope.child("LayerNorm"), outputs, true);
        Some(Self { dense, act, norm, module: scope.module() })
    }

    /// `forward`.
    pub fn forward(&self, hidden: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            let mut hidden = self.dense.forward(hidden);
            hidden = self.act.forward(&hidden);
            hidden = self.norm.forward(&hidden);
            hidden
        })
    }
}

#[derive(Debug)]
enum Head {
    /// `BertForMaskedLM`.
    MaskedLm { transform: Box<Transform>, decoder: Linear, module: ModuleId },
    /// `BertForSequenceClassification`.
    SequenceClassification { dropout: (f64, ModuleId), classifier: Linear },
}

#[derive(Debug)]
struct Bert {
    cx: Rc<Context>,
    embeddings: Embeddings,
    encoder: Encoder,
    pooler: Option<Pooler>,
    head: Head,
    module: ModuleId,
    seq: u64,
    plan: Plan,
}

/// `BertForMaskedLM(config)` or `BertForSequenceClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = Sizes::read(config, plan, 30_522, [768, 3072, 12])?;
    let seq = plan.seq()?;
    check_positions(seq, sizes.positions, 0)?;
    let bert = scope.child("bert");
    let embeddings = Embeddings::new(&bert.child("embeddings"), &sizes, plan, false);
    let encoder = Encoder::new(&bert.child("encoder"), config, &sizes, plan)?;
    let classifies = plan.task == Task::SequenceClassification;
    let pooler = classifies.then(|| Pooler::new(&bert.child("pooler"), sizes.hidden));
    let head = if classifies {
        let labels = classification::num_labels(config, plan.task)?;
        let probability = config.probability("classifier_dropout", sizes.dropout)?;
        Head::SequenceClassification {
            dropout: (probability, scope.child("dropout").module()),
            classifier: Linear::new(&scope.child("classifier"), sizes.hidden, labels, true),
        }
    } else {
        masked_lm(scope, config, &sizes, embeddings.word())?
            .ok_or_else(|| super::unknown_activation(config, "hidden_act", sizes.act))?
    };
    Ok(Box::new(Bert {
        cx: Rc::clone(scope.cx()),
        embeddings,
        encoder,
        pooler,
        head,
        module: bert.module(),
        seq,
        plan: plan.clone(),
    }))
}

/// `BertOnlyMLMHead`: the decoder's weight is the word embedding's, its bias the head's own.
fn masked_lm(scope: &Scope, config: &Config<'_>, sizes: &Sizes<'_>, words: &Embedding) -> Result<Option<Head>> {
    let cls = scope.child("cls");
    let predictions = cls.child("predictions");
    let place = predictions.place();
    let transform = predictions.child("transform");
    let Some(transform) = Transform::new(&transform, [sizes.hidden; 2], sizes.act) else { return Ok(None) };
    let tied = config.flag("tie_word_embeddings", true)?;
    let decoder = classification::decoder(&predictions, "decoder", place, words, tied);
    Ok(Some(Head::MaskedLm { transform: Box::new(transform), decoder, module: predictions.module() }))
}

impl Bert {
    /// `BertModel.forward`: the last hidden state and the pooled one.
    fn base(&self, ids: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        self.cx.within(self.module, || {
            let embeds = self.embeddings.forward(ids);
            let (mask, _made_of) =
                self.encoder.mask(&embeds, self.encoder.mask_dtype(&embeds, self.embeddings.word().weight()), mask);
            let hidden = self.encoder.forward(&embeds, mask.as_ref());
            let pooled = self.pooler.as_ref().map(|pooler| pooler.forward(&hidden));
            drop((embeds, mask));
            (hidden, pooled)
        })
    }
}

impl Model for Bert {
    fn batch(&self) -> Batch {
        batch(&self.cx, &self.plan, self.seq)
    }

    fn forward(&self, batch: &Batch) -> Output {
        let cx = &self.cx;
        let (ids, mask, labels) = batch.parts();
        let (hidden, mut pooled) = self.base(ids, mask);
        let logits = match &self.head {
            Head::MaskedLm { transform, decoder, module } => cx.within(*module, || {
                let transformed = transform.forward(&hidden);
                decoder.forward(&transformed)
            }),
            Head::SequenceClassification { dropout: (p, module), classifier } => {
                pooled = pooled.map(|pooled| cx.within(*module, || ops::dropout(&pooled, *p)));
                classifier.forward(pooled.as_ref().unwrap_or(&hidden))
            }
        };
        let loss = classification::loss(&logits, labels);
        drop((hidden, pooled));
        Output { held: vec![loss.clone(), logits], loss }
    }
}
