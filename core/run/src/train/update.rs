//! What follows the micro-batches of a step: clipping, the optimizer, the average of the weights, zeroed gradients.

use plimsoll_ledger::PhaseName;
use plimsoll_scenario::{Optimizer, OptimizerImpl, Trainer as Whose, Training, ZeroGrad, ZeroGradAt};
use plimsoll_torch::{ops, optim};

use super::Loop;

impl Loop<'_> {
    pub(super) fn update(&mut self, step: u32) {
        let (cx, training) = (self.cx, self.training);
        if let Some(engine) = self.spread.cut.clone().as_ref().and_then(|cut| cut.engine()) {
            cx.begin(PhaseName::Optimizer, Some(step), None);
            engine.step(cx, &mut self.optimizers);
            self.step_on_host(true);
            return engine.stepped(cx);
        }
        cx.begin(PhaseName::Clip, Some(step), None);
        if self.spread.replica.is_some() {
            cx.begin(PhaseName::Optimizer, Some(step), None);
            if training.zero_grad_at == ZeroGradAt::AfterStep {
                cx.begin(PhaseName::ZeroGrad, Some(step), None);
            }
            return;
        }
        if let Some(scaler) = &mut self.scaler {
            for optimizer in &self.optimizers {
                scaler.unscale(cx, optimizer.parameters());
            }
        }
        let clips = self.trainer.as_mut().is_some_and(|trainer| trainer.clips(cx));
        if training.clip_grad_norm || clips {
            let mut clipped = optim::clip_grad_norm(cx, self.parameters, self.spread.norm, self.zero.take());
            if let Some(trainer) = &mut self.trainer {
                trainer.clipped(&mut clipped);
            }
            self.zero = clipped.kept;
        }
        cx.begin(PhaseName::Optimizer, Some(step), None);
        for optimizer in &mut self.optimizers {
            let found_inf = self.scaler.as_ref().filter(|_| optimizer.scales_itself).map(|scaler| scaler.found_inf(cx));
            optimizer.step(cx);
            drop(found_inf);
        }
        self.step_on_host(false);
        if let Some(scaler) = &mut self.scaler {
            scaler.update();
        }
        if let Some(ema) = &mut self.ema {
            ema.update(cx);
        }
        if let (Whose::Torchvision, Some(logits)) = (training.trainer, self.locals.outputs.first()) {
            drop(self.accuracies.replace(ops::accuracies(logits)));
        }
        if training.zero_grad_at == ZeroGradAt::AfterStep {
            cx.begin(PhaseName::ZeroGrad, Some(step), None);
            self.zero_grad();
        }
    }

    /// The step of what lies in the machine's memory. PyTorch takes its optimizers over lists on cards alone; of Adam `deepspeed` has
    /// one of its own (`DeepSpeedCPUAdam`), which makes nothing but its states.
    fn step_on_host(&mut self, deepspeed: bool) {
        let hosted = self.spread.cut.as_ref().map(|cut| cut.hosted()).unwrap_or_default();
        if hosted.is_empty() {
            return;
        }
        let training = self.training;
        if self.on_host.is_empty() {
            let adam = matches!(training.optimizer, Optimizer::Adam | Optimizer::AdamW);
            let optimizer_impl = match training.optimizer_impl {
                _ if deepspeed && adam => OptimizerImpl::Fused,
                OptimizerImpl::Foreach => OptimizerImpl::ForLoop,
                named => named,
            };
            self.on_host = optim::build(&Training { optimizer_impl, ..training.clone() }, &hosted);
        }
        for optimizer in &mut self.on_host {
            optimizer.step(&self.cx.host());
        }
    }

    pub(super) fn zero_grad(&self) {
        let hosted = self.spread.cut.as_ref().map(|cut| cut.hosted()).unwrap_or_default();
        match self.training.zero_grad {
            ZeroGrad::SetToNone => {
                for parameter in self.parameters.iter().chain(&hosted) {
                    optim::set_gradient(parameter, None);
                }
            }
            ZeroGrad::Zero => optim::zero_gradients(self.cx, self.parameters),
        }
    }
}
