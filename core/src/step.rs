//! The training loop: the one place that says in which order things happen.

use std::rc::Rc;

use crate::estimate::PhaseName;
use crate::models::{Built, Model, Output};
use crate::ops;
use crate::optim::{self, GradScaler, Optimizer};
use crate::scenario::{OptimizerImpl, Precision, Training, ZeroGrad, ZeroGradAt};
use crate::tensor::{Context, DType, Tensor, backward};

/// Optimizer steps that are executed: the first creates lazy state, the second is the steady state.
pub const STEPS: u32 = 2;

/// Names the loop's variables keep alive between micro-batches, as Python's do.
#[derive(Debug, Default)]
struct Locals {
    batch: Vec<Tensor>,
    loss: Option<Tensor>,
    outputs: Vec<Tensor>,
}

#[derive(Debug)]
struct Loop<'a> {
    cx: &'a Rc<Context>,
    model: &'a dyn Model,
    parameters: &'a [Tensor],
    training: &'a Training,
    optimizer: Box<dyn Optimizer>,
    scaler: Option<GradScaler>,
    locals: Locals,
}

/// Two optimizer steps of `training` on a loaded model.
pub fn train(cx: &Rc<Context>, built: &Built, training: &Training) {
    let mut run = Loop {
        cx,
        model: built.model.as_ref(),
        parameters: &built.parameters,
        training,
        optimizer: optim::build(training.optimizer, training.optimizer_impl),
        scaler: (training.precision == Precision::Fp16Amp).then(GradScaler::default),
        locals: Locals::default(),
    };
    for step in 1..=STEPS {
        for micro_batch in executed(training.accumulation) {
            run.micro_batch(step, micro_batch);
        }
        run.update(step);
    }
    // What the loop still holds is not let go of: the run ends here.
    cx.end();
}

/// Micro-batches that are executed. From the second on they all allocate and free the same, so of a long accumulation
/// only the first four and the last one run.
fn executed(accumulation: u64) -> impl Iterator<Item = u64> {
    const ALL_UP_TO: u64 = 8;
    const FIRST: u64 = 4;
    let long = accumulation > ALL_UP_TO;
    (1..=if long { FIRST } else { accumulation }).chain(long.then_some(accumulation))
}

impl Loop<'_> {
    fn micro_batch(&mut self, step: u32, micro_batch: u64) {
        let (cx, training) = (self.cx, self.training);
        cx.begin(PhaseName::Input, Some(step), Some(micro_batch));
        // The last batch is let go of only when the new one takes its name.
        self.locals.batch = self.model.batch();

        cx.begin(PhaseName::Forward, Some(step), Some(micro_batch));
        let autocast = match training.precision {
            Precision::Fp16Amp => Some(DType::Float16),
            Precision::Bf16Amp => Some(DType::BFloat16),
            Precision::Fp32 | Precision::Fp16 | Precision::Bf16 => None,
        };
        let Output { mut loss, held } = cx.with_autocast(autocast, || self.model.forward(&self.locals.batch));
        self.locals.loss = None;
        self.locals.outputs = held;
        if !training.keep_outputs {
            self.locals.outputs.clear();
        }
        if training.accumulation > 1 {
            loss = ops::div_scalar(&loss);
        }
        let root = self.scaler.as_mut().map_or_else(|| loss.clone(), |scaler| scaler.scale(&loss));
        // The loop keeps the loss's value for logging, not its graph.
        self.locals.loss = Some(loss.detach());
        drop(loss);

        if micro_batch == 1 && training.zero_grad_at == ZeroGradAt::BeforeBackward {
            cx.begin(PhaseName::ZeroGrad, Some(step), None);
            self.zero_grad();
        }
        cx.begin(PhaseName::Backward, Some(step), Some(micro_batch));
        backward(&root);
        drop(root);
    }

    fn update(&mut self, step: u32) {
        let (cx, training) = (self.cx, self.training);
        cx.begin(PhaseName::Clip, Some(step), None);
        if let Some(scaler) = &mut self.scaler {
            scaler.unscale(cx);
        }
        if training.clip_grad_norm {
            optim::clip_grad_norm(cx, self.parameters);
        }
        cx.begin(PhaseName::Optimizer, Some(step), None);
        let fused = training.optimizer_impl == OptimizerImpl::Fused;
        let found_inf = self.scaler.as_ref().filter(|_| fused).map(|scaler| scaler.found_inf(cx));
        self.optimizer.step(cx, self.parameters);
        drop(found_inf);
        if let Some(scaler) = &mut self.scaler {
            scaler.update();
        }
        if training.zero_grad_at == ZeroGradAt::AfterStep {
            cx.begin(PhaseName::ZeroGrad, Some(step), None);
            self.zero_grad();
        }
    }

    fn zero_grad(&self) {
        if self.training.zero_grad == ZeroGrad::SetToNone {
            self.parameters.iter().for_each(optim::drop_gradient);
        }
    }
}
