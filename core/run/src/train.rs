//! The training loop: the one place that says in which order things happen.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use plimsoll_families::{Built, Model, Output, in_full, smoothed};
use plimsoll_ground::Result;
use plimsoll_ledger::PhaseName;
use plimsoll_parallel::{DataParallel, Ddp, Early, Fsdp1, Fsdp2, Late, Replica, Whole, Wrapper};
use plimsoll_scenario::{
    Optimizer, OptimizerImpl, Parallel, ParallelStrategy, Precision, ShardingStrategy, Task, Trainer as Whose,
    Training, ZeroGrad, ZeroGradAt,
};
use plimsoll_torch::nn::Sharded;
use plimsoll_torch::optim::{self, Ema, GradScaler, Norm, Share};
use plimsoll_torch::tensor::{Context, DType, Geometry, ModuleId, Past, Position, Repeat, Smoothing, Tensor, backward};
use plimsoll_torch::{Batch, ops};

use crate::hull::Player;
use crate::trainer::{Trainer, evaluate};

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
}

/// Where in the stream an executed micro-batch stands, and what it left behind.
#[derive(Debug)]
struct Recording {
    /// Whether gradients were there when its backward began: then it adds to them, else it makes them.
    accumulates: bool,
    first_storage: u32,
    /// The model's forward; then what the loop does with the loss; then backward; then what goes with the names that it leaves.
    stretches: [Range<Position>; 4],
    /// The storage of the loss, and its dtype.
    loss: (u32, DType),
    /// The storage of every parameter's gradient that it made.
    gradients: Vec<Option<u32>>,
    /// Whether some of them are parts of one storage.
    shared: bool,
    /// What else is alive after it: leaves of the graph and their gradients.
    graph: Vec<u32>,
    /// What a wrapper holds beside gradients.
    held: Option<(u32, Geometry, DType)>,
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

/// What spreads the training over several cards; nothing of it on one.
#[derive(Debug, Default)]
struct Spread {
    ddp: Option<Rc<Ddp>>,
    /// All cards in one process.
    together: Option<Rc<DataParallel>>,
    /// The same on another card than the first, where no loop runs.
    replica: Option<Rc<Replica>>,
    cut: Option<Rc<dyn Wrapper>>,
    /// Whether the model computes its loss within its own forward, as those of transformers do.
    whole: bool,
    /// Whether gradients are reduced after every micro-batch, and not after a step's last one only.
    every: bool,
    /// How gradients are clipped.
    norm: Norm,
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
    let spread =
        Spread { whole: built.computes_loss, ..spread(cx, listed, &built.sharded, &built.sharing, training, parallel) };
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
        (None, None) => spread.together.is_none() && spread.replica.is_none(),
    };
    let repeats = if copied { repeats } else { Repeats::Executed };
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
    let ema = training.ema.then(|| Ema::new(cx, &built.parameters));
    steps(cx, runs, spread, parameters, ema, training, repeats)
}

/// Wraps a model of these parameters, as it lists them, and as they were cut where they are.
fn spread(
    cx: &Rc<Context>,
    listed: Vec<Tensor>,
    sharded: &[Sharded],
    sharing: &[(ModuleId, Tensor)],
    training: &Training,
    parallel: &Parallel,
) -> Spread {
    let ddp = (parallel.strategy == ParallelStrategy::Ddp).then(|| Ddp::wrap(cx, &listed, parallel));
    let (mut together, mut replica) = (None, None);
    if parallel.strategy == ParallelStrategy::DataParallel {
        match sharded {
            [] => together = Some(DataParallel::wrap(cx, &listed, parallel.gpus)),
            sharded => replica = Some(Replica::wrap(cx, sharded, &listed, parallel)),
        }
    }
    let cut: Option<Rc<dyn Wrapper>> = match parallel.strategy {
        ParallelStrategy::Fsdp2 => Some(Fsdp2::wrap(cx, sharded.to_vec(), &listed, parallel)),
        ParallelStrategy::Fsdp1 => Some(Fsdp1::wrap(cx, sharded.to_vec(), &listed, parallel)),
        ParallelStrategy::Zero0 => Some(Whole::wrap(cx, sharded, &listed, training.clip_grad_norm, parallel.gpus)),
        ParallelStrategy::Zero1 | ParallelStrategy::Zero2 => Some(Early::wrap(cx, sharded, &listed, parallel)),
        ParallelStrategy::Zero3 => Some(Late::wrap(cx, sharded, &listed, sharing, parallel)),
        _ => None,
    };
    drop(listed);
    let every = match parallel.strategy {
        ParallelStrategy::Ddp => !parallel.ddp.no_sync,
        ParallelStrategy::Fsdp1 | ParallelStrategy::Fsdp2 => parallel.fsdp.sync_every_micro_batch,
        _ => false,
    };
    let norm = match parallel.strategy {
        ParallelStrategy::Fsdp2 => Norm::OfShards,
        ParallelStrategy::Fsdp1 if parallel.fsdp.sharding_strategy == ShardingStrategy::NoShard => {
            Norm::PlainBehindZero
        }
        ParallelStrategy::Fsdp1 if parallel.fsdp.cpu_offload => Norm::OneByOneElsewhere,
        ParallelStrategy::Fsdp1 => Norm::OneByOne,
        _ => Norm::Plain,
    };
    Spread { ddp, together, replica, cut, whole: false, every, norm }
}

/// The optimizer steps of `training` on a hull, spread over several cards as `parallel` says.
///
/// # Errors
/// As [`train`].
pub fn play(cx: &Rc<Context>, mut player: Player, training: &Training, parallel: &Parallel) -> Result<()> {
    let listed = std::mem::take(&mut player.listed);
    let spread = spread(cx, listed, &player.sharded, &[], training, parallel);
    let cut = spread.cut.clone();
    if let Some(cut) = &cut {
        cut.checked()?;
    }
    let parameters: Vec<Tensor> = cut.map_or_else(|| player.parameters.clone(), |cut| cut.parameters().to_vec());
    let ema = training.ema.then(|| Ema::new(cx, &parameters));
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
        optimizers: optim::build(training, parameters),
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
    fn micro_batch(&mut self, step: u32, micro_batch: u64) {
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

    /// Forward and backward of a recording.
    fn play(&mut self, before_backward: impl Fn(&Self)) {
        let cx = self.cx;
        let cut = self.spread.cut.clone();
        let engine = cut.as_ref().and_then(|cut| cut.engine());
        if let Some(cut) = &cut {
            cut.prepare(cx);
        }
        let (ddp, reduces) = (self.spread.ddp.clone(), self.reduces);
        let called = || {
            if let Some(ddp) = &ddp {
                ddp.before_forward(cx, reduces);
            }
            drop(cut.as_ref().and_then(|cut| cut.before_forward(cx, None, reduces)));
        };
        let (divided, scaled) = (self.training.accumulation > 1, self.scaler.is_some());
        let Runs::Hull(player) = &mut self.runs else { return };
        let root = player.forward(cx, divided && engine.is_none(), self.scaler.as_mut(), called);
        before_backward(self);
        let Runs::Hull(player) = &mut self.runs else { return };
        match (engine, player.loss()) {
            // `engine.backward(loss)`: divided by the accumulation, and scaled.
            (Some(engine), Some(loss)) => {
                let divided = ops::div_scalar(&loss);
                let scaled = engine.scales().then(|| ops::mul_scalar(&divided));
                drop(loss);
                player.backward(cx, 1 + usize::from(engine.scales()));
                engine.after_backward(cx);
                drop(scaled);
                drop(divided);
            }
            (_, loss) => {
                drop(loss);
                player.backward(cx, usize::from(divided) + usize::from(scaled));
                drop(root);
            }
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

    fn execute(&mut self, accumulates: bool, before_backward: impl Fn(&Self)) {
        let (cx, training) = (self.cx, self.training);
        if let Some(cut) = &self.spread.cut {
            cut.prepare(cx);
        }
        let first_storage = cx.next_storage();
        let begin = cx.position();
        let autocast = self.autocast();
        let Runs::Model(model, task) = self.runs else { return };
        let batch = &*self.locals.batch.get_or_insert_with(|| model.batch());
        if training.use_cache {
            drop(cx.replace_past(Some(Past::default())));
        }
        let ddp = self.spread.ddp.as_deref();
        let together = self.spread.together.as_deref();
        let replica = self.spread.replica.clone();
        let cast = self.spread.cut.as_ref().and_then(|cut| cut.before_forward(cx, Some(batch), self.reduces));
        let whole = self.spread.whole;
        let Output { mut loss, held } = cx.with_autocast(autocast, || {
            if let Some(together) = together {
                together.before_forward(cx);
            }
            if let Some(replica) = &replica {
                replica.before_forward(cx);
            }
            let forward = || model.forward(cast.as_ref().unwrap_or(batch));
            let output = if whole { cx.within(ModuleId::ROOT, forward) } else { forward() };
            let mut output = match ddp {
                Some(ddp) => {
                    let (loss, held) = ddp.outputs(output.loss, output.held);
                    Output { loss, held }
                }
                None => output,
            };
            if let Some(together) = together {
                let (loss, held) = together.outputs(cx, output.loss, output.held);
                output = Output { loss, held };
            }
            if let Some(replica) = &replica {
                drop((output.held, cx.replace_past(None)));
                output = Output { loss: replica.outputs(output.loss), held: Vec::new() };
            }
            // `past_key_values` of the model's output; DDP looks for tensors in tuples, lists and dicts only.
            output.held.extend(cx.replace_past(None).into_iter().flat_map(Past::into_tensors));
            match cx.loss_rules().smoothing {
                Smoothing::Outside => smoothed(output, batch.labels(), task),
                Smoothing::None | Smoothing::InLoss => output,
            }
        });
        drop(cast);
        if replica.is_some() {
            self.locals.batch = None;
        }
        let held = if self.trainer.is_some() && autocast.is_some() { in_full(held) } else { held };
        let forward = begin..cx.position();
        self.locals.graph.clear();
        if let Some(trainer) = &self.trainer {
            // The Trainer's name of the last loss is taken by the new one after backward.
            loss = trainer.loss(loss);
        } else {
            self.locals.loss = None;
        }
        self.locals.outputs = held;
        if !training.keep_outputs {
            self.locals.outputs.clear();
        }
        let cut = self.spread.cut.clone();
        let engine = cut.as_ref().and_then(|cut| cut.engine());
        let whole_loss = self.trainer.as_ref().map(|_| loss.clone());
        // `accelerate` divides whatever the number is.
        let ahead = training.trainer == Whose::NanoGpt && replica.is_none();
        if (training.accumulation > 1 || whole_loss.is_some() || ahead) && engine.is_none() && replica.is_none() {
            loss = ops::div_scalar(&loss);
        }
        if ahead {
            // `X, Y = get_batch('train')`
            self.locals.batch = Some(model.batch());
        }
        let root = self.scaler.as_mut().map_or_else(|| loss.clone(), |scaler| scaler.scale(&loss));
        // The name holds the loss and with it the graph's nodes: a leaf that the forward made for itself lives on with
        // its gradient. With adapters the reference rows let go of the graph.
        let named = whole_loss.as_ref().unwrap_or(&loss);
        let kept_loss = (named.storage_id(), named.dtype());
        // The name of the divided loss of `accelerate`, until its backward returns.
        let divided = if whole_loss.is_some() {
            Some(loss)
        } else {
            self.locals.loss = Some(if training.lora.is_some() { loss.detach() } else { loss.clone() });
            drop(loss);
            None
        };
        let settled = forward.end..cx.position();

        before_backward(self);
        let begin = cx.position();
        match engine {
            // `engine.backward(loss)`: divided by the accumulation, and scaled.
            Some(engine) => {
                let divided = ops::div_scalar(&root);
                let scaled = if engine.scales() { ops::mul_scalar(&divided) } else { divided.clone() };
                drop(root);
                backward(&scaled);
                engine.after_backward(cx);
                drop(scaled);
                drop(divided);
            }
            None => {
                if let Some(together) = together {
                    together.before_backward();
                }
                backward(&root);
                if let Some(together) = together {
                    together.after_backward(cx);
                }
                if let Some(replica) = &replica {
                    replica.after_backward(cx);
                }
                drop(root);
            }
        }
        drop(divided);
        let backward = begin..cx.position();
        let mut left = backward.end..backward.end;
        if let Some(loss) = whole_loss {
            self.locals.loss = Some(loss.detach());
            left.start = cx.position();
            // With it goes the graph, and a leaf that the forward made for itself.
            drop(loss);
            left.end = cx.position();
        }

        // Kept outputs hold the graph, and whatever else it holds: no plain list of handles stands for that. A forward
        // that changed the model will not be repeated.
        let changed = cx.take_changed();
        if self.repeats == Repeats::Copied && !training.keep_outputs && !changed {
            let gradients: Vec<Option<u32>> =
                self.parameters.iter().map(|p| optim::gradient_storage(p).filter(|id| *id >= first_storage)).collect();
            let held = cut.as_ref().and_then(|cut| cut.held());
            let held = held.map(|held| (held.storage_id(), held.geometry().clone(), held.dtype()));
            let mut known: Vec<u32> = gradients.iter().flatten().copied().chain([kept_loss.0]).collect();
            known.extend(held.as_ref().map(|(id, ..)| *id));
            known.sort_unstable();
            let shared = known.windows(2).any(|pair| matches!(pair, [a, b] if a == b));
            let mut graph = cx.alive_since(first_storage);
            graph.retain(|id| known.binary_search(id).is_err());
            // A leaf lets go of its gradient, which is younger, before it goes itself.
            graph.reverse();
            let stretches = [forward, settled, backward, left];
            self.recordings.push(Recording {
                accumulates,
                first_storage,
                stretches,
                loss: kept_loss,
                gradients,
                shared,
                graph,
                held,
            });
        }
    }

    /// What [`Loop::execute`] would do, copied from what it did.
    fn repeat(&mut self, index: usize, before_backward: impl Fn(&Self)) {
        let cx = self.cx;
        if let Some(cut) = &self.spread.cut {
            cut.prepare(cx);
        }
        let recording = &self.recordings[index];
        let mut repeat = Repeat::new(recording.first_storage);
        let [forward, settled, backward, left] = recording.stretches.clone();
        repeat.events(cx, forward);
        self.locals.graph.clear();
        if self.trainer.is_none() {
            self.locals.loss = None;
        }
        repeat.events(cx, settled);
        before_backward(self);
        repeat.events(cx, backward);
        let recording = &self.recordings[index];
        let (loss, dtype) = recording.loss;
        self.locals.loss = repeat.tensor(cx, loss, Geometry::contiguous(&[]), dtype);
        repeat.events(cx, left);
        self.locals.graph = recording.graph.iter().filter_map(|id| repeat.whole(cx, *id)).collect();
        // Gradients that are parts of one buffer share it.
        let mut made: BTreeMap<u32, Tensor> = BTreeMap::new();
        for (parameter, gradient) in self.parameters.iter().zip(&recording.gradients) {
            if let Some(id) = gradient {
                let geometry = parameter.geometry().clone();
                let known = made.get(id).map(|known| known.view_as(geometry.clone()));
                let gradient = known.or_else(|| repeat.tensor(cx, *id, geometry, parameter.dtype()));
                if recording.shared {
                    made.extend(gradient.clone().map(|gradient| (*id, gradient)));
                }
                optim::set_gradient(parameter, gradient);
            }
        }
        if let (Some(cut), Some((id, geometry, dtype))) = (&self.spread.cut, &recording.held) {
            cut.hold(repeat.tensor(cx, *id, geometry.clone(), *dtype));
        }
    }

    fn update(&mut self, step: u32) {
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

    fn zero_grad(&self) {
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

#[cfg(test)]
mod tests {
    use plimsoll_catalog::device::Workspace;
    use plimsoll_catalog::software::Rules;
    use plimsoll_families as models;
    use plimsoll_ground::Bytes;
    use plimsoll_ledger::{Ledger, PhaseName, Work};
    use plimsoll_scenario::{ParallelStrategy, Scenario};
    use plimsoll_torch::ops::SdpaRules;
    use plimsoll_torch::tensor::Context;

    use super::{Repeats, train};

    fn run(scenario: &Scenario, repeats: Repeats) -> Ledger {
        let cx = Context::new();
        let kept = |bytes| Workspace { bytes, kept: true };
        cx.set_blas_workspace(kept(Bytes::new(8_519_680)), kept(Bytes::from_mib(1)));
        cx.begin(PhaseName::Load, None, None);
        let whole = [ParallelStrategy::None, ParallelStrategy::Ddp].contains(&scenario.parallel.strategy);
        let shards = (!whole).then(|| plimsoll_parallel::plan(&scenario.parallel));
        let built = models::build(&cx, scenario, SdpaRules::cuda((8, 0), Rules::default()), shards).unwrap();
        train(&cx, &built, &scenario.training, &scenario.parallel, repeats).unwrap();
        let ledger = cx.take();
        drop(built);
        ledger
    }

    /// What an event is about, whatever ids the two runs gave.
    fn events(ledger: &Ledger) -> Vec<(bool, u64, String)> {
        let line = |e: &plimsoll_ledger::Event| {
            let s = &ledger.storages[e.id() as usize];
            (e.is_free(), s.bytes, format!("{} {} {:?} {:?}", ledger.op(s), ledger.grad_fn(s), s.kind, ledger.sizes(s)))
        };
        ledger.events.iter().map(line).collect()
    }

    /// What runs, and after how many events.
    fn launches(ledger: &Ledger) -> Vec<(u32, Option<&Work>)> {
        ledger.launches.iter().map(|launch| (launch.at, ledger.work(launch))).collect()
    }

    #[test]
    fn a_copied_micro_batch_of_several_cards_is_the_same_stream_as_an_executed_one() {
        let spread = [
            r#""strategy":"ddp""#,
            r#""strategy":"ddp","ddp":{"no_sync":false}"#,
            r#""strategy":"ddp","ddp":{"gradient_as_bucket_view":true}"#,
            r#""strategy":"ddp","ddp":{"static_graph":true}"#,
            r#""strategy":"ddp","ddp":{"find_unused_parameters":true}"#,
            r#""strategy":"fsdp2""#,
            r#""strategy":"fsdp2","replicate":2,"fsdp":{"param_dtype":"bf16","reduce_dtype":"fp32"}"#,
            r#""strategy":"fsdp2","fsdp":{"sync_every_micro_batch":false,"reshard_after_forward":false}"#,
            r#""strategy":"fsdp2","fsdp":{"reshard_after_backward":false}"#,
            r#""strategy":"fsdp2","fsdp":{"cpu_offload":true}"#,
            r#""strategy":"fsdp1","fsdp":{"param_dtype":"bf16"}"#,
            r#""strategy":"fsdp1","fsdp":{"use_orig_params":true}"#,
            r#""strategy":"fsdp1","fsdp":{"sharding_strategy":"no-shard"}"#,
            r#""strategy":"fsdp1","fsdp":{"sharding_strategy":"shard-grad-op","sync_every_micro_batch":false}"#,
            r#""strategy":"fsdp1","fsdp":{"cpu_offload":true}"#,
            r#""strategy":"zero-0""#,
            r#""strategy":"zero-1""#,
            r#""strategy":"zero-2","zero":{"reduce_bucket_size":20000,"overlap_comm":true}"#,
            r#""strategy":"zero-2","zero":{"offload_optimizer":"cpu"}"#,
            r#""strategy":"zero-3","zero":{"reduce_bucket_size":20000}"#,
        ];
        for keys in spread {
            for accumulation in [1, 3] {
                let static_graph = keys.contains("static_graph") && accumulation > 1;
                if static_graph {
                    continue;
                }
                let text = format!(
                    r#"{{"model":{{"hf":{{"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
                    "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":301}}}},"input":{{"batch":2,"seq":16}},
                    "training":{{"precision":"fp32","accumulation":{accumulation}}},"parallel":{{"gpus":4,{keys}}}}}"#
                );
                let scenario = Scenario::from_json(&text).unwrap();
                scenario.estimated().unwrap();
                let (copied, executed) = (run(&scenario, Repeats::Copied), run(&scenario, Repeats::Executed));
                assert_eq!(copied.phases, executed.phases, "{keys}, {accumulation}");
                assert!(launches(&copied) == launches(&executed), "{keys}, {accumulation}");
                assert!(events(&copied) == events(&executed), "{keys}, {accumulation}");
            }
        }
    }

    #[test]
    fn a_copied_micro_batch_is_the_same_stream_as_an_executed_one() {
        let model = r#""model":{"hf":{"model_type":"llama","hidden_size":64,"intermediate_size":128,
            "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":300}}"#;
        let recipes = [
            r#""precision":"bf16-amp","accumulation":3"#,
            r#""precision":"fp16-amp","accumulation":1"#,
            r#""precision":"fp16-amp","accumulation":4,"zero_grad":"zero""#,
            r#""precision":"fp32","accumulation":2,"zero_grad_at":"before-backward""#,
            r#""precision":"bf16","accumulation":2,"zero_grad":"zero","zero_grad_at":"before-backward""#,
            r#""precision":"bf16","accumulation":3,"checkpointing":"full","optimizer_impl":"fused""#,
            r#""precision":"bf16-amp","accumulation":3,"keep_outputs":true"#,
            r#""precision":"bf16-amp","accumulation":3,"trainer":"transformers""#,
            r#""precision":"fp16-amp","accumulation":4,"trainer":"transformers","clip_grad_norm":false,"checkpointing":"full""#,
            r#""precision":"bf16-amp","accumulation":3,"loss_impl":"chunked""#,
            r#""precision":"bf16-amp","accumulation":3,"loss_impl":"fused-linear","optimizer":"adamw-8bit""#,
            r#""precision":"bf16","accumulation":4,"loss_impl":"fused-linear","checkpointing":"full","zero_grad":"zero""#,
            r#""precision":"fp16-amp","accumulation":3,"label_smoothing":0.1,"optimizer":"muon","ema":true"#,
            r#""precision":"fp32","accumulation":2,"label_smoothing":0.1,"optimizer":"lion","checkpointing":"full""#,
            r#""precision":"bf16","checkpointing":"full","accumulation":2,"lora":{"rank":4,"targets":["q_proj"],"dropout":0.1}"#,
            r#""precision":"bf16-amp","checkpointing":"full","accumulation":2,"lora":{"rank":4},"trainer":"transformers""#,
        ];
        // A leaf of the model's own, held by the loss.
        let t5 = r#""model":{"hf":{"model_type":"t5","d_model":64,"d_kv":16,"d_ff":128,"num_layers":2,"num_heads":4,
            "vocab_size":300}}"#;
        let cases = recipes.iter().map(|recipe| (model, *recipe));
        for (model, recipe) in cases.chain([(t5, r#""precision":"bf16","checkpointing":"full","accumulation":4"#)]) {
            let text = format!(r#"{{{model},"input":{{"batch":2,"seq":16}},"training":{{{recipe}}}}}"#);
            let scenario = Scenario::from_json(&text).unwrap();
            let (copied, executed) = (run(&scenario, Repeats::Copied), run(&scenario, Repeats::Executed));
            assert_eq!(copied.phases, executed.phases, "{recipe}");
            assert!(launches(&copied) == launches(&executed), "{recipe}");
            assert!(events(&copied) == events(&executed), "{recipe}");
        }
    }
}
