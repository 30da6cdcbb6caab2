//! RoBERTa (transformers `models/roberta/modeling_roberta.py`): BERT's layers, positions counted from the tokens, heads
//! of its own.

use std::rc::Rc;

use plimsoll_ground::Result;
use plimsoll_scenario::Task;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::{LayerNorm, Linear, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{Context, ModuleId, Tensor};

use super::bert_encoder::{Embeddings, Encoder, Sizes, batch, check_positions};
use super::classification::ClassificationHead;
use super::config::Config;
use super::{Model, Output, Plan, classification};

/// `RobertaLMHead`.
#[derive(Debug)]
struct LmHead {
    dense: Linear,
    layer_norm: LayerNorm,
    decoder: Linear,
    module: ModuleId,
}

impl LmHead {
    fn forward(&self, features: &Tensor) -> Tensor {
        features.cx().within(self.module, || {
            let mut x = self.dense.forward(features);
            x = ops::gelu(&x);
            x = self.layer_norm.forward(&x);
            x = self.decoder.forward(&x);
            x
        })
    }
}

#[derive(Debug)]
enum Head {
    /// `RobertaForMaskedLM`.
    MaskedLm(LmHead),
    /// `RobertaForSequenceClassification`.
    SequenceClassification(ClassificationHead),
}

#[derive(Debug)]
struct Roberta {
    cx: Rc<Context>,
    embeddings: Embeddings,
    encoder: Encoder,
    head: Head,
    module: ModuleId,
    seq: u64,
    plan: Plan,
}

/// `RobertaForMaskedLM(config)` or `RobertaForSequenceClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = Sizes::read(config, plan, 50_265, [768, 3072, 12])?;
    let seq = plan.seq()?;
    // Positions begin behind the padding token's id.
    check_positions(seq, sizes.positions, config.count("pad_token_id", 1)? + 1)?;
    let base = scope.child("roberta");
    let embeddings = Embeddings::new(&base.child("embeddings"), &sizes, plan, true);
    let encoder = Encoder::new(&base.child("encoder"), config, &sizes, plan)?;
    let head = if plan.task == Task::SequenceClassification {
        let labels = classification::num_labels(config, plan.task)?;
        let dropout = config.probability("classifier_dropout", sizes.dropout)?;
        let head = ClassificationHead::new(&scope.child("classifier"), sizes.hidden, labels, dropout, ops::tanh);
        Head::SequenceClassification(head)
    } else {
        let place = scope.child("lm_head");
        let own = place.place();
        let dense = Linear::new(&place.child("dense"), sizes.hidden, sizes.hidden, true);
        let layer_norm = LayerNorm::new(&place.child("layer_norm"), sizes.hidden, true);
        let tied = config.flag("tie_word_embeddings", true)?;
        let decoder = classification::decoder(&place, "decoder", own, embeddings.word(), tied);
        Head::MaskedLm(LmHead { dense, layer_norm, decoder, module: place.module() })
    };
    Ok(Box::new(Roberta {
        cx: Rc::clone(scope.cx()),
        embeddings,
        encoder,
        head,
        module: base.module(),
        seq,
        plan: plan.clone(),
    }))
}

impl Roberta {
    /// `RobertaModel.forward`.
    fn base(&self, ids: &Tensor, mask: Option<&Tensor>) -> Tensor {
        self.cx.within(self.module, || {
            let embeds = self.embeddings.forward(ids);
            let (mask, _made_of) =
                self.encoder.mask(&embeds, self.encoder.mask_dtype(&embeds, self.embeddings.word().weight()), mask);
            let hidden = self.encoder.forward(&embeds, mask.as_ref());
            drop((embeds, mask));
            hidden
        })
    }
}

impl Model for Roberta {
    fn batch(&self) -> Batch {
        batch(&self.cx, &self.plan, self.seq)
    }

    fn forward(&self, batch: &Batch) -> Output {
        let (ids, mask, labels) = batch.parts();
        let hidden = self.base(ids, mask);
        let logits = match &self.head {
            Head::MaskedLm(head) => head.forward(&hidden),
            Head::SequenceClassification(head) => head.forward(&hidden),
        };
        let loss = classification::loss(&logits, labels);
        drop(hidden);
        Output { held: vec![loss.clone(), logits], loss }
    }
}
