//! The training loop: the one place that says in which order things happen.

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_families::{Built, Model};
use plimsoll_ground::Result;
use plimsoll_ledger::PhaseName;
use plimsoll_scenario::{
    ActivationOffloading, Optimizer, Parallel, Precision, Task, Trainer as Whose, Training, ZeroGrad, ZeroGradAt,
};
use plimsoll_torch::optim::{self, Ema, GradScaler, Share};
use plimsoll_torch::tensor::{Context, DType, Tensor};
use plimsoll_torch::{Batch, Op};

use crate::hull::Player;
use crate::trainer::{Trainer, evaluate};
use repeat::Recording;
use spread::{Spread, spread};

mod in_backward;
mod micro_batch;
mod repeat;
mod spread;
mod update;

/// Whether what was done before, a layer or a micro-batch, may be copied instead of executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// Copied: the same stream in a fraction of the time.
    Copied,
    /// Executed, every time.
    Executed,
}

/// Names the loop's variables keep alive between micro-batches, as Python's do.
#[derive(Debug, Default)]
struct Locals {
    batch: Option<Batch>,
    /// What the graph of a copied loss would hold.
    graph: Vec<Tensor>,
    loss: Option<Tensor>,
    outputs: Vec<Tensor>,
    /// What the model keeps until its next forward.
    kept: Vec<Tensor>,
}

#[derive(Debug)]
struct Loop<'a> {
    cx: &'a Rc<Context>,
    runs: Runs<'a>,
    parameters: &'a [Tensor],
    training: &'a Training,
    optimizers: Vec<Share>,
    ema: Option<Ema>,
    scaler: Option<GradScaler>,
    locals: Locals,
    repeats: Repeats,
    recordings: Vec<Recording>,
    spread: Spread,
    /// Whether gradients are reduced after this micro-batch.
    reduces: bool,
    /// What clipping keeps from one step to the next.
    zero: Option<Tensor>,
    /// The Trainer's own names, where the loop is its.
    trainer: Option<Trainer>,
    /// `acc1` and `acc5`, where the loop is that of torchvision's references.
    accuracies: Option<[Tensor; 2]>,
    /// The optimizers that run in the machine's memory, made in the first step.
    on_host: Vec<Share>,
}

/// What runs forward and backward.
#[derive(Debug)]
enum Runs<'a> {
    /// A model of ours.
    Model(&'a dyn Model, Task),
    /// A recording.
    Hull(Box<Player>),
}

/// The optimizer steps of `training` on a loaded model, spread over several cards as `parallel` says: on the first of them,
/// for which all stand; of a model that `DataParallel` sends to another card, on that one.
///
/// # Errors
/// What the strategy's own code fails with, as only a run shows.
pub fn train(
    cx: &Rc<Context>,
    built: &Built,
    training: &Training,
    parallel: &Parallel,
    repeats: Repeats,
) -> Result<()> {
    let runs = Runs::Model(built.model.as_ref(), built.task);
    let listed = built.listed.take();
    let spread = Spread {
        whole: built.computes_loss,
        ..spread(cx, listed, &built.sharded, (&built.sharing, &built.leaves), training, parallel)
    };
    let cut = spread.cut.clone();
    if let Some(cut) = &cut {
        cut.checked()?;
    }
    let parameters: &[Tensor] = match &cut {
        Some(cut) => cut.parameters(),
        None if spread.replica.is_some() => &[],
        None => &built.parameters,
    };
    // What hooks change in themselves is not in a copy.
    let alike = spread.every || training.accumulation == 1;
    let copied = match (&spread.ddp, &cut) {
        (Some(ddp), _) => ddp.repeats(alike),
        (None, Some(cut)) => cut.repeats(alike),
        // An optimizer that steps in backward makes its state in the first one.
        (None, None) => spread.together.is_none() && spread.replica.is_none() && !training.optimizer_in_backward,
    };
    let repeats = if copied { repeats } else { Repeats::Executed };
    if training.activation_offloading == ActivationOffloading::OffloadActivations {
        cx.spare_head();
    }
    if training.trainer == Whose::Torchvision {
        cx.search_convolutions();
    }
    let sorted;
    let parameters = if training.trainer == Whose::NanoGpt {
        // `configure_optimizers`: what decays is two-dimensional, and the first of two groups.
        let (matrices, vectors): (Vec<_>, Vec<_>) = parameters.iter().cloned().partition(|p| p.dims().len() >= 2);
        sorted = [matrices, vectors].concat();
        &sorted
    } else {
        parameters
    };
    let loaded = cx.next_storage();
    let _reference = reference(cx, training, loaded);
    let ema = training.ema.then(|| Ema::new(cx, &built.parameters, loaded));
    steps(cx, runs, spread, parameters, ema, training, repeats)
}

/// `copy.deepcopy(model)`, which stays as it is.
fn reference(cx: &Rc<Context>, training: &Training, loaded: u32) -> Vec<Tensor> {
    if training.reference_model { cx.copy_loaded(Op::Clone, "reference_model", loaded) } else { Vec::new() }
}

/// The optimizer steps of `training` on a hull, spread over several cards as `parallel` says.
///
/// # Errors
/// As [`train`].
pub fn play(cx: &Rc<Context>, mut player: Player, training: &Training, parallel: &Parallel) -> Result<()> {
    let listed = std::mem::take(&mut player.listed);
    let spread = spread(cx, listed, &player.sharded, (&[], &[]), training, parallel);
    let cut = spread.cut.clone();
    if let Some(cut) = &cut {
        cut.checked()?;
    }
    let parameters: Vec<Tensor> = cut.map_or_else(|| player.parameters.clone(), |cut| cut.parameters().to_vec());
    let loaded = cx.next_storage();
    let _reference = reference(cx, training, loaded);
    let ema = training.ema.then(|| Ema::new(cx, &parameters, loaded));
    let runs = Runs::Hull(Box::new(player));
    steps(cx, runs, spread, &parameters, ema, training, Repeats::Executed)
}

fn steps(
    cx: &Rc<Context>,
    runs: Runs<'_>,
    spread: Spread,
    parameters: &[Tensor],
    ema: Option<Ema>,
    training: &Training,
    repeats: Repeats,
) -> Result<()> {
    // The loop is the first card's.
    let here = spread.replica.is_none();
    let mut run = Loop {
        cx,
        runs,
        parameters,
        training,
        ema,
        optimizers: if training.optimizer_in_backward {
            in_backward::step(cx, training, parameters);
            Vec::new()
        } else {
            optim::build(training, parameters)
        },
        scaler: (training.precision == Precision::Fp16Amp && here).then(GradScaler::default),
        locals: Locals::default(),
        repeats,
        recordings: Vec::new(),
        spread,
        reduces: true,
        zero: None,
        trainer: (training.trainer == Whose::Transformers && here).then(|| Trainer::new(cx)),
        accuracies: None,
        on_host: Vec::new(),
    };
    if let Some(engine) = run.spread.cut.clone().as_ref().and_then(|cut| cut.engine()) {
        engine.begin(cx, &mut run.optimizers);
    }
    for step in 1..=u32::try_from(training.optimizer_steps).unwrap_or(u32::MAX) {
        for micro_batch in listed(training.accumulation) {
            run.micro_batch(step, micro_batch);
            if cx.exhausted() {
                cx.end();
                return Ok(());
            }
            if let Some(ddp) = run.spread.ddp.as_ref().filter(|_| step == 1) {
                ddp.finished(cx)?;
            }
        }
        run.update(step);
    }
    // What the loop still holds is not let go of: the run ends here.
    cx.end();
    Ok(())
}

/// Micro-batches that are run. From the second on they all allocate and free the same, so of a long accumulation only
/// the first four and the last one are listed.
fn listed(accumulation: u64) -> impl Iterator<Item = u64> {
    const ALL_UP_TO: u64 = 8;
    const FIRST: u64 = 4;
    let long = accumulation > ALL_UP_TO;
    (1..=if long { FIRST } else { accumulation }).chain(long.then_some(accumulation))
}

impl Loop<'_> {
    /// Whether the process has bitsandbytes, where it is installed: with what the recipe takes, the Trainer, or transformers' optimizers.
    fn imports_bitsandbytes(&self) -> bool {
        let brought = || self.cx.machine().rules.has(&rules::OPTIMIZERS_BRING_PEFT);
        self.training.imports_bitsandbytes()
            || self.training.trainer == Whose::Transformers
            || self.training.optimizer == Optimizer::Adafactor && brought()
    }

    fn micro_batch(&mut self, step: u32, micro_batch: u64) {
        let stashes = self.training.activation_offloading == ActivationOffloading::OffloadActivations;
        // TRL's `training_step` is given what the Trainer has fetched; else a micro-batch is made inside.
        if stashes && self.trainer.is_none() {
            self.cx.enter_stash(self.imports_bitsandbytes());
        }
        self.cx.begin(PhaseName::Input, Some(step), Some(micro_batch));
        let first = |at| micro_batch == 1 && self.training.zero_grad_at == at;
        let (early, zeroes) = (first(ZeroGradAt::BeforeForward), first(ZeroGradAt::BeforeBackward));
        let dropped = (early || zeroes) && self.training.zero_grad == ZeroGrad::SetToNone;
        // Of parameters that are cut a recording has the whole ones.
        let whole = match &self.runs {
            Runs::Hull(player) => player.parameters.as_slice(),
            Runs::Model(..) => self.parameters,
        };
        let accumulates = !dropped && whole.iter().any(optim::has_gradient);
        match &mut self.runs {
            // A share of it is sent with the forward.
            Runs::Model(..) if self.spread.replica.is_some() => {}
            // The last batch is let go of only when the new one takes its name.
            // nanoGPT's has been there since the last micro-batch's forward.
            Runs::Model(..) if self.training.trainer == Whose::NanoGpt && self.locals.batch.is_some() => {}
            Runs::Model(model, _) => {
                if self.training.trainer == Whose::Torchvision {
                    // `for image, target in ...: image, target = image.to(device), ...`
                    self.locals.batch = None;
                    self.cx.hold_until_loss(std::mem::take(&mut self.locals.outputs));
                }
                let batch = match &mut self.trainer {
                    Some(trainer) => trainer.batch(self.cx, *model, micro_batch, self.training.accumulation),
                    None => model.batch(),
                };
                self.locals.batch = Some(batch);
                if self.training.trainer == Whose::NanoGpt {
                    evaluate(self.cx, *model, self.autocast());
                }
            }
            Runs::Hull(player) => player.input(self.cx, accumulates),
        }
        if early {
            self.cx.begin(PhaseName::ZeroGrad, Some(step), None);
            self.zero_grad();
        }
        self.cx.begin(PhaseName::Forward, Some(step), Some(micro_batch));
        if stashes && self.trainer.is_some() {
            self.cx.enter_stash(self.imports_bitsandbytes());
        }
        self.reduces = self.spread.every || micro_batch == self.training.accumulation;
        if let (Some(ddp), Runs::Model(..)) = (&self.spread.ddp, &self.runs) {
            ddp.before_forward(self.cx, self.reduces);
        }
        let before_backward = |run: &Self| {
            if zeroes {
                run.cx.begin(PhaseName::ZeroGrad, Some(step), None);
                run.zero_grad();
            }
            run.cx.begin(PhaseName::Backward, Some(step), Some(micro_batch));
        };
        if let Runs::Hull(_) = self.runs {
            return self.play(before_backward);
        }
        match self.recordings.iter().position(|r| r.accumulates == accumulates) {
            Some(index) => self.repeat(index, before_backward),
            None => self.execute(accumulates, before_backward),
        }
        if let (Some(trainer), Some(loss)) = (&self.trainer, &self.locals.loss) {
            trainer.add(loss);
        }
    }

    /// What the forward computes in, under autocast.
    fn autocast(&self) -> Option<DType> {
        match self.training.precision {
            Precision::Fp16Amp => Some(DType::Float16),
            Precision::Bf16Amp => Some(DType::BFloat16),
            Precision::Fp32 | Precision::Fp16 | Precision::Bf16 => None,
        }
    }
}

#[cfg(test)]
mod tests;
