//! What transformers' classifiers share: how many labels, and the loss.

use super::config::Config;
use crate::Result;
use crate::ops;
use crate::scenario::Task;
use crate::tensor::Tensor;

/// `config.num_labels`: as many as `id2label` names, else two. Vision models that name none are taken with ImageNet's
/// 1000 classes: two would say little about how they are trained.
pub fn num_labels(config: &Config<'_>, task: Task) -> Result<u64> {
    if config.has("problem_type") && config.text("problem_type", "")? != "single_label_classification" {
        return Err(config.error("problem_type", "only single labels are estimated yet", "leave it out"));
    }
    let default = if task == Task::ImageClassification { 1000 } else { 2 };
    let labels = match config.entries("id2label") {
        Some(named) => named,
        None => config.size("num_labels", default)?,
    };
    if labels < 2 {
        let key = if config.has("id2label") { "id2label" } else { "num_labels" };
        return Err(config.error(key, "one label is a regression, which is not estimated yet", "give at least two"));
    }
    Ok(labels)
}

/// `cross_entropy(logits.view(-1, num_labels), labels.view(-1))`.
pub fn loss(logits: &Tensor, labels: &Tensor) -> Tensor {
    let classes = logits.size(-1);
    let flat = ops::view(logits, &[logits.numel() / classes.max(1), classes]);
    ops::cross_entropy(&flat, &ops::view(labels, &[labels.numel()]))
}
