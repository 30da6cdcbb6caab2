//! ELECTRA (transformers `models/electra/modeling_electra.py`): BERT's layers behind narrow embeddings.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
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

/// `ElectraGeneratorPredictions`.
#[derive(Debug)]
struct GeneratorPredictions {
    dense: Linear,
    norm: LayerNorm,
    module: ModuleId,
}

impl GeneratorPredictions {
    fn forward(&self, hidden: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            let mut x = self.dense.forward(hidden);
            x = ops::gelu(&x);
            x = self.norm.forward(&x);
            x
        })
    }
}

#[derive(Debug)]
enum Head {
    /// `ElectraForMaskedLM`.
    MaskedLm(GeneratorPredictions, Linear),
    /// `ElectraForSequenceClassification`.
    SequenceClassification(ClassificationHead),
}

#[derive(Debug)]
struct Electra {
    cx: Rc<Context>,
    embeddings: Embeddings,
    embeddings_project: Option<Linear>,
    encoder: Encoder,
    head: Head,
    module: ModuleId,
    seq: u64,
    plan: Plan,
}

/// `ElectraForMaskedLM(config)` or `ElectraForSequenceClassification(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = Sizes::read(config, plan, 30_522, [256, 1024, 4])?;
    let sizes = Sizes { embedding: config.size("embedding_size", 128)?, ..sizes };
    let seq = plan.seq()?;
    check_positions(seq, sizes.positions, 0)?;
    let base = scope.child("electra");
    let embeddings = Embeddings::new(&base.child("embeddings"), &sizes, plan, false);
    let embeddings_project = (sizes.embedding != sizes.hidden)
        .then(|| Linear::new(&base.child("embeddings_project"), sizes.embedding, sizes.hidden, true));
    let encoder = Encoder::new(&base.child("encoder"), config, &sizes, plan)?;
    let head = if plan.task == Task::SequenceClassification {
        let labels = classification::num_labels(config, plan.task)?;
        let dropout = config.probability("classifier_dropout", sizes.dropout)?;
        let head = ClassificationHead::new(&scope.child("classifier"), sizes.hidden, labels, dropout, ops::gelu);
        Head::SequenceClassification(head)
    } else {
        let place = scope.child("generator_predictions");
        let norm = LayerNorm::new(&place.child("LayerNorm"), sizes.embedding, true);
        let dense = Linear::new(&place.child("dense"), sizes.hidden, sizes.embedding, true);
        let tied = config.flag("tie_word_embeddings", true)?;
        let decoder = classification::projector(&scope.child("generator_lm_head"), embeddings.word(), tied);
        Head::MaskedLm(GeneratorPredictions { dense, norm, module: place.module() }, decoder)
    };
    Ok(Box::new(Electra {
        cx: Rc::clone(scope.cx()),
        embeddings,
        embeddings_project,
        encoder,
        head,
        module: base.module(),
        seq,
        plan: plan.clone(),
    }))
}

impl Electra {
    /// `ElectraModel.forward`.
    fn base(&self, ids: &Tensor, mask: Option<&Tensor>) -> Tensor {
        self.cx.within(self.module, || {
            // Before 5 the mask came first and had the weights' dtype, which a projection under autocast has not.
            let older = !self.cx.machine().rules.has(&rules::ENCODERS_SHARE_MASK);
            let dtype = self.embeddings.word().weight().dtype();
            let early = older.then(|| self.encoder.mask(ids, dtype, mask));
            let mut embeds = self.embeddings.forward(ids);
            if let Some(project) = &self.embeddings_project {
                embeds = project.forward(&embeds);
            }
            let (mask, _made_of) = early.unwrap_or_else(|| self.encoder.mask(&embeds, embeds.dtype(), mask));
            let hidden = self.encoder.forward(&embeds, mask.as_ref());
            drop((embeds, mask));
            hidden
        })
    }
}

impl Model for Electra {
    fn batch(&self) -> Batch {
        batch(&self.cx, &self.plan, self.seq)
    }

    fn forward(&self, batch: &Batch) -> Output {
        let (ids, mask, labels) = batch.parts();
        let hidden = self.base(ids, mask);
        let logits = match &self.head {
            Head::MaskedLm(predictions, decoder) => {
                let transformed = predictions.forward(&hidden);
                decoder.forward(&transformed)
            }
            Head::SequenceClassification(head) => head.forward(&hidden),
        };
        let loss = classification::loss(&logits, labels);
        drop(hidden);
        Output { held: vec![loss.clone(), logits], loss }
    }
}
