//! DeepSpeed's ZeRO.

use plimsoll_ground::{Error, Result};

use super::super::{Offload, ParallelStrategy, at, zero};
use crate::{LossImpl, Optimizer, Precision, Scenario, ZeroGrad, ZeroGradAt};

/// What DeepSpeed's engine does that is followed.
pub(super) fn with_zero(scenario: &Scenario) -> Result<()> {
    let Scenario { parallel, training, .. } = scenario;
    let strategy = parallel.strategy;
    let refuse =
        |key: &str, what: String, hint: &str| Err(Error::new(key, format!("{what} is not estimated yet"), hint));
    let family = scenario.family();
    if family.is_own() && !["mlp", "hull"].contains(&family.name) {
        let hint = "use ddp, one card, or a model of Hugging Face";
        return refuse(at::gpus, format!("{strategy} of {}", family.name), hint);
    }
    super::sized(scenario)?;
    if matches!(training.precision, Precision::Bf16Amp | Precision::Fp16Amp) {
        let hint = "DeepSpeed's own is precision = \"bf16\", or \"fp16\"; use one of them or \"fp32\"";
        return refuse(crate::at::training::precision, format!("autocast under {strategy}"), hint);
    }
    // `_cast_module_mixed_precision` of DeepSpeed 0.19.8 casts parameters and leaves buffers as they are; seen on a hollow card with
    // a ResNet, stages 1 to 3, in both types. With adapters no norm is trained, and nothing fails.
    let half = matches!(training.precision, Precision::Bf16 | Precision::Fp16);
    if half && family.has_batch_norms(scenario.model.source.keys()) && training.lora.is_none() {
        return Err(Error::new(
            crate::at::training::precision,
            "PyTorch fails in the first backward: DeepSpeed casts the weights of batch norms to 16 bits and leaves their statistics in \
             float32 (\"Expected running_mean to have type ... but got Float\")",
            "set it to fp32, or use ddp",
        ));
    }
    if parallel.zero.offload_optimizer != Offload::None && strategy == ParallelStrategy::Zero1 {
        return refuse(zero::at::offload_optimizer, format!("offload under {strategy}"), "use zero-2, or leave it out");
    }
    swapped(scenario)?;
    let plain = [Optimizer::Sgd, Optimizer::SgdMomentum, Optimizer::Adam, Optimizer::AdamW];
    if !plain.contains(&training.optimizer) {
        let what = format!("{} under {strategy}", training.optimizer);
        return refuse(crate::at::training::optimizer, what, "use sgd, sgd-momentum, adam or adamw");
    }
    if training.loss_impl != LossImpl::Full || training.label_smoothing > 0.0 {
        let what = format!("a loss that is not the model's own under {strategy}");
        return refuse(crate::at::training::loss_impl, what, "use loss_impl = \"full\" without label_smoothing");
    }
    if training.zero_grad != ZeroGrad::SetToNone || training.zero_grad_at != ZeroGradAt::AfterStep {
        let what = "gradients that outlive the step".to_owned();
        return refuse(
            crate::at::training::zero_grad,
            what,
            "DeepSpeed's engine lets them go with the step: leave it out",
        );
    }
    Ok(())
}

/// What DeepSpeed swaps to NVMe, and what it needs for that.
fn swapped(scenario: &Scenario) -> Result<()> {
    /// A parameter, its gradient, and both moments of Adam: each has a buffer while its sub-group is stepped
    /// (`swap_in_optimizer_state`).
    const BUFFERS: u64 = 4;
    let Scenario { parallel, training, .. } = scenario;
    let keys = &parallel.zero;
    let optimizer = keys.offload_optimizer == Offload::Nvme;
    let key = match (optimizer, keys.offload_param == Offload::Nvme) {
        (true, _) => zero::at::offload_optimizer,
        (false, true) => zero::at::offload_param,
        (false, false) => return Ok(()),
    };
    if parallel.strategy != ParallelStrategy::Zero3 {
        let problem = format!("DeepSpeed swaps to NVMe in stage 3 alone, and this is {}", parallel.strategy);
        return Err(Error::new(key, problem, "use zero-3, or cpu"));
    }
    if optimizer && !matches!(training.optimizer, Optimizer::Adam | Optimizer::AdamW) {
        let problem = format!("{} whose states lie on NVMe is not estimated yet", training.optimizer);
        return Err(Error::new(key, problem, "use adam or adamw, which DeepSpeed runs on the processor, or cpu"));
    }
    if optimizer && keys.offload_buffer_count < BUFFERS {
        return Err(Error::new(
            zero::at::offload_buffer_count,
            format!(
                "DeepSpeed fails in the second step: a parameter, its gradient and both moments are swapped in together, and there are \
                 {} buffers for these {BUFFERS}",
                keys.offload_buffer_count
            ),
            format!("set it to at least {BUFFERS}"),
        ));
    }
    Ok(())
}
