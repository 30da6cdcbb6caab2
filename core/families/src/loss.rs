//! The recipe's say in the loss: `loss_impl` and `label_smoothing`.

use plimsoll_catalog::Vendor;
use plimsoll_scenario::{Family, LossImpl, Mode, Scenario, Task, Trainer};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{DType, HeadLoss, LossRules, Smoothing, Tensor};

use super::Output;

/// How the scenario's loss is computed. `family` takes it.
pub fn rules(scenario: &Scenario, family: &Family) -> LossRules {
    if scenario.training.mode == Mode::Inference {
        return LossRules::default();
    }
    let counted = scenario.training.trainer == Trainer::Transformers;
    LossRules { smoothing: smoothing(scenario, family), head: head(scenario), counted }
}

fn head(scenario: &Scenario) -> HeadLoss {
    match scenario.training.loss_impl {
        LossImpl::Full => HeadLoss::Full,
        LossImpl::Chunked => HeadLoss::Chunked,
        LossImpl::FusedLmHead => HeadLoss::FusedLmHead { metrics: scenario.training.trainer == Trainer::Transformers },
        LossImpl::FusedLinear => {
            let gpu = plimsoll_catalog::gpu(&scenario.device.gpu);
            let capability = gpu.and_then(|g| g.compute_capability);
            HeadLoss::FusedLinear {
                cuda: gpu.is_some_and(|g| g.vendor == Vendor::Nvidia),
                // ROCm answers get_device_capability() with the gfx number, 9 and up.
                sums_in_product: match gpu.map(|g| g.vendor) {
                    Some(Vendor::Nvidia) => capability.is_some_and(|(major, _)| major >= 8),
                    Some(Vendor::Amd) => true,
                    _ => false,
                },
            }
        }
    }
}

/// Hugging Face models are trained as the Trainer does it (`label_smoothing_factor`), the families of our own with
/// `cross_entropy(label_smoothing=)`.
fn smoothing(scenario: &Scenario, family: &Family) -> Smoothing {
    match scenario.training.label_smoothing > 0.0 {
        false => Smoothing::None,
        true if family.is_own() => Smoothing::InLoss,
        true => Smoothing::Outside,
    }
}

/// `loss / num_items_in_batch`, where the Trainer hands that number over (`fixed_cross_entropy` of
/// `transformers/loss/loss_utils.py`); its tensor is the Trainer's, and lives longer than the loss.
pub fn counted(loss: Tensor) -> Tensor {
    if loss.cx().loss_rules().counted { ops::div_scalar(&loss) } else { loss }
}

/// The half numbers among a model's outputs as `accelerate` hands them on after autocast (`convert_outputs_to_fp32`): in float32.
pub fn in_full(held: Vec<Tensor>) -> Vec<Tensor> {
    let full = |x: &Tensor| if x.dtype().is_half() { ops::to(x, DType::Float32) } else { x.clone() };
    // All of them are there until the last is made.
    let converted = held.iter().map(full).collect();
    drop(held);
    converted
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
