//! The recipe's say in the loss: `loss_impl` and `label_smoothing`.

use plimsoll_catalog::Vendor;
use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{LossImpl, Mode, ModelSource, Scenario, Task};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{HeadLoss, LossRules, Smoothing, Tensor};

use super::Output;

/// How the scenario's loss is computed.
///
/// # Errors
/// A loss the model does not have.
pub fn rules(scenario: &Scenario) -> Result<LossRules> {
    if scenario.training.mode == Mode::Inference {
        return Ok(LossRules::default());
    }
    Ok(LossRules { smoothing: smoothing(scenario)?, head: head(scenario)? })
}

fn head(scenario: &Scenario) -> Result<HeadLoss> {
    let implementation = scenario.training.loss_impl;
    if implementation == LossImpl::Full {
        return Ok(HeadLoss::Full);
    }
    let refuse = |problem: String, hint: &str| Err(Error::new("training.loss_impl", problem, hint));
    if !scenario.takes_loss_impl() {
        let problem = format!("{implementation} is for the causal language models of Hugging Face");
        return refuse(problem, "use loss_impl = \"full\", or leave it out");
    }
    if scenario.training.label_smoothing > 0.0 {
        let problem = format!("the Trainer smooths labels on all logits, which {implementation} does not make");
        return refuse(problem, "use loss_impl = \"full\", or leave label_smoothing out");
    }
    if implementation == LossImpl::Chunked {
        return Ok(HeadLoss::Chunked);
    }
    let gpu = plimsoll_catalog::gpu(&scenario.device.gpu);
    let capability = gpu.and_then(|g| g.compute_capability);
    Ok(HeadLoss::FusedLinear {
        cuda: gpu.is_some_and(|g| g.vendor == Vendor::Nvidia),
        // ROCm answers get_device_capability() with the gfx number, 9 and up.
        sums_in_product: match gpu.map(|g| g.vendor) {
            Some(Vendor::Nvidia) => capability.is_some_and(|(major, _)| major >= 8),
            Some(Vendor::Amd) => true,
            _ => false,
        },
    })
}

/// Hugging Face models are trained as the Trainer does it (`label_smoothing_factor`), the families of our own with
/// `cross_entropy(label_smoothing=)`.
fn smoothing(scenario: &Scenario) -> Result<Smoothing> {
    if scenario.training.label_smoothing <= 0.0 {
        return Ok(Smoothing::None);
    }
    let task = scenario.model.task;
    let refuse = |problem: String| Err(Error::new("training.label_smoothing", problem, "leave it out"));
    match &scenario.model.source {
        _ if !scenario.takes_label_smoothing() && matches!(task, Task::Seq2SeqLm | Task::SpeechSeq2Seq) => {
            refuse(format!("for {task} the Trainer needs decoder inputs from the data, which is not estimated yet"))
        }
        _ if !scenario.takes_label_smoothing() => refuse(format!("{task} has no labels to smooth")),
        ModelSource::Family { .. } => Ok(Smoothing::InLoss),
        _ => Ok(Smoothing::Outside),
    }
}

/// What the loop makes of a model's output that was not given its labels: `accelerate` closes autocast and makes the
/// outputs float32, the Trainer's `LabelSmoother` computes the loss. `labels` are the batch's.
pub fn smoothed(output: Output, labels: &Tensor, task: Task) -> Output {
    let Output { mut held, loss } = output;
    drop(loss);
    let cx = labels.cx();
    let autocast = cx.autocast_dtype().is_some();
    cx.leave_autocast();
    // What a model output holds: the place of the loss, then the logits.
    held.retain(|tensor| tensor.requires_grad());
    if autocast {
        held = held.into_iter().map(ops::converted).collect();
    }
    let loss = match held.first() {
        Some(logits) => ops::label_smoother(logits, labels, task == Task::CausalLm),
        None => unreachable!("a model's output has logits"),
    };
    Output { loss, held }
}
