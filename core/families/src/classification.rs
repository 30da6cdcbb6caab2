//! What transformers' encoders share at their heads: classifiers, decoders over the vocabulary, and the loss.

use plimsoll_ground::Result;
use plimsoll_scenario::Task;
use plimsoll_torch::nn::{Embedding, Linear, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{Context, ModuleId, Smoothing, Tensor};

use super::config::Config;

/// `config.num_labels`: what it is set to, else as many as `id2label` names, else two. Vision models that name none are taken with ImageNet's
/// 1000 classes: two would say little about how they are trained.
pub fn num_labels(config: &Config<'_>, task: Task) -> Result<u64> {
    if config.has("problem_type") && config.text("problem_type", "")? != "single_label_classification" {
        return Err(config.error("problem_type", "only single labels are estimated yet", "leave it out"));
    }
    let default = if task == Task::ImageClassification { 1000 } else { 2 };
    let labels = match config.entries("id2label") {
        Some(named) if !config.has("num_labels") => named,
        _ => config.size("num_labels", default)?,
    };
    if labels < 2 {
        let key = if config.has("num_labels") { "num_labels" } else { "id2label" };
        return Err(config.error(key, "one label is a regression, which is not estimated yet", "give at least two"));
    }
    Ok(labels)
}

/// Whether the loss is computed outside of the model, which is then given no labels.
pub fn is_outside(cx: &Context) -> bool {
    cx.loss_rules().smoothing == Smoothing::Outside
}

/// `cross_entropy(logits.view(-1, num_labels), labels.view(-1))`.
pub fn loss(logits: &Tensor, labels: &Tensor) -> Tensor {
    let classes = logits.size(-1);
    let flat = ops::view(logits, &[logits.numel() / classes.max(1), classes]);
    ops::cross_entropy(&flat, &ops::view(labels, &[labels.numel()]))
}

/// A decoder over the vocabulary with a bias of its own, its weight the word embedding's where `tied`.
pub fn projector(scope: &Scope, words: &Embedding, tied: bool) -> Linear {
    let weight = words.weight();
    if tied {
        Linear::tied_with_bias(scope, weight, scope.parameter(&[weight.size(0)]))
    } else {
        Linear::biased_head(scope, weight.size(1), weight.size(0), None)
    }
}

/// A decoder `name` inside a head whose own bias, listed at `place`, it shares where it shares the word embedding.
pub fn decoder(head: &Scope, name: &'static str, place: usize, words: &Embedding, tied: bool) -> Linear {
    let (decoder, weight) = (head.child(name), words.weight());
    if tied {
        let bias = head.own_parameter(place, &[weight.size(0)]);
        return Linear::tied_with_bias(&decoder, weight, bias);
    }
    let decoder = Linear::biased_head(&decoder, weight.size(1), weight.size(0), None);
    // Nothing uses it then, but it is there.
    head.own_parameter(place, &[weight.size(0)]);
    decoder
}

/// `RobertaClassificationHead` and its copies: the first token through dropout, a linear, an activation, dropout and
/// the classifier.
#[derive(Debug)]
pub struct ClassificationHead {
    dense: Linear,
    out_proj: Linear,
    dropout: (f64, ModuleId),
    act: fn(&Tensor) -> Tensor,
    module: ModuleId,
}

impl ClassificationHead {
    /// With `act` between its linears.
    pub fn new(scope: &Scope, hidden: u64, labels: u64, dropout: f64, act: fn(&Tensor) -> Tensor) -> Self {
        Self {
            dense: Linear::new(&scope.child("dense"), hidden, hidden, true),
            out_proj: Linear::new(&scope.child("out_proj"), hidden, labels, true),
            dropout: (dropout, scope.child("dropout").module()),
            act,
            module: scope.module(),
        }
    }

    /// `forward`.
    pub fn forward(&self, features: &Tensor) -> Tensor {
        let cx = features.cx();
        let dropout = |x: &Tensor| cx.within(self.dropout.1, || ops::dropout(x, self.dropout.0));
        cx.within(self.module, || {
            let mut x = ops::whole(&ops::first(features));
            x = dropout(&x);
            x = self.dense.forward(&x);
            x = (self.act)(&x);
            x = dropout(&x);
            x = self.out_proj.forward(&x);
            x
        })
    }
}
