//! Playing a hull: its micro-batches in the place of a model's forward and backward.
//!
//! A storage lives as long as a [`Tensor`] refers to it: one that Python holds, one for each handle of autograd, one for each
//! that backward took out. What the loop does besides (dividing the loss, scaling it, the optimizer) is the loop's own.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_catalog::{Gpu, Vendor};
use plimsoll_ground::{Error, Result};
use plimsoll_ledger::hull::{Chosen, Hull, Segment, Step, Tape, Way, names_match, values};
use plimsoll_ledger::{DType, GradFnId, Kind, ModuleId, OpId};
use plimsoll_scenario::{Checkpointing, HullModel, Scenario, at, variant_of};
use plimsoll_torch::ops;
use plimsoll_torch::optim::{self, GradScaler};
use plimsoll_torch::tensor::{Context, Tensor, Told, ToldShape};

/// The tape that is played.
#[derive(Clone, Debug)]
enum Played {
    /// This one of the file's.
    Recorded(Arc<Hull>, usize),
    /// One that was worked out from it.
    Made(Arc<Tape>),
}

impl Played {
    fn tape(&self) -> &Tape {
        match self {
            Self::Recorded(hull, number) => &hull.tapes[*number],
            Self::Made(tape) => tape,
        }
    }
}

/// A hull at the sizes that are asked, its parameters loaded.
#[derive(Debug)]
pub struct Player {
    tape: Played,
    /// Bytes of every storage.
    bytes: Vec<u64>,
    /// The hull's shapes, and behind them one of no dimensions.
    shapes: Vec<ToldShape>,
    modules: Vec<ModuleId>,
    ops: Vec<OpId>,
    nodes: Vec<GradFnId>,
    dtypes: Vec<DType>,
    /// What was loaded, by storage.
    loaded: Vec<Option<Tensor>>,
    /// The parameters in the model's order.
    pub parameters: Vec<Tensor>,
    /// What the last micro-batch left for the next one to let go of.
    left: Vec<Option<Tensor>>,
    /// What nothing lets go of.
    kept: Vec<Tensor>,
    /// Whether the first micro-batch was played.
    begun: bool,
    now: Now,
}

/// The micro-batch that is being played.
#[derive(Debug, Default)]
struct Now {
    segment: usize,
    /// By storage, counted from the segment's first.
    held: Vec<Option<Tensor>>,
    /// What the ledger calls them.
    ids: Vec<u32>,
    handles: Vec<Option<Tensor>>,
    taken: Vec<Option<Tensor>>,
    /// Modules that are being called.
    stack: Vec<u32>,
}

/// An element type by PyTorch's name; one that the ledger has no name for is counted in bytes.
fn dtype(name: &str) -> DType {
    DType::ALL.into_iter().find(|dtype| dtype.name() == name).unwrap_or(DType::UInt8)
}

/// Cards that choose kernels as another one does.
fn class(capability: (u8, u8)) -> (u8, u8) {
    match capability {
        (8, 7) => (8, 6),
        (10 | 11, _) => (10, 0),
        (12, _) => (12, 0),
        other => other,
    }
}

/// The tape of this scenario.
fn choose(hull: &Arc<Hull>, scenario: &Scenario, gpu: &Gpu) -> Result<Played> {
    let precision = scenario.training.precision.as_str();
    let attends = |tape: &Tape| {
        tape.storages
            .iter()
            .any(|born| hull.ops.get(born.op as usize).is_some_and(|op| op.starts_with("_scaled_dot_product")))
    };
    let capability = gpu.compute_capability.filter(|_| gpu.vendor == Vendor::Nvidia).map(class);
    let variant = variant_of(&scenario.training);
    let fits = |tape: &Tape| capability.is_some_and(|c| tape.cards.contains(&c)) || !attends(tape);
    let same = |tape: &Tape| tape.precision == precision && tape.variant == variant;
    let known = hull.tapes.iter().any(same);
    let batch = scenario.input.batch;
    let training = &scenario.training;
    let checkpointed = training.checkpointing != Checkpointing::None;
    let found = hull.position(batch, checkpointed, |tape| same(tape) && fits(tape));
    let number = found.ok_or_else(|| {
        let (problem, hint) = if known {
            (
                format!("attention takes other kernels on the {} than this hull was recorded with", gpu.name),
                "choose a card \
             of compute capability 8.0 or above",
            )
        } else {
            (format!("this hull was not recorded in {precision}"), "record it with plimsoll trace --precision")
        };
        Error::new(if known { at::device::gpu } else { at::training::precision }, problem, hint)
    })?;
    let recorded = || Ok(Played::Recorded(Arc::clone(hull), number));
    if !checkpointed {
        return recorded();
    }
    let tape = &hull.tapes[number];
    let marked = tape.is_marked();
    let patterns = &training.checkpoint_modules;
    if patterns.is_empty() {
        // What PyTorch itself checkpointed while it was recorded is played as it is.
        if tape.checkpointed && !marked {
            return recorded();
        }
        return match marked {
            true => Ok(Played::Made(Arc::new(tape.checkpointed(hull, Chosen::Marked)?.0))),
            false => Err(Error::new(
                at::training::checkpointing,
                "the model has no switch for checkpointing, and no blocks of one class are called in it",
                "name the modules: training.checkpoint_modules = [\"layers.*\"]; a hull of an older plimsoll is recorded again",
            )),
        };
    }
    if (tape.checkpointed && !marked) || !tape.says_what_is_given() {
        return Err(Error::new(
            at::training::checkpoint_modules,
            "this model does something else when it is run again, so other modules than its blocks cannot be worked out",
            "leave checkpoint_modules out, or call torch.utils.checkpoint in the model and record it again",
        ));
    }
    let unknown = patterns.iter().find(|pattern| !hull.modules.iter().any(|name| names_match(pattern, name)));
    let (played, count) = tape.checkpointed(hull, Chosen::Named(patterns))?;
    match unknown {
        None if count > 0 => Ok(Played::Made(Arc::new(played))),
        _ => {
            let named = unknown.map_or_else(|| patterns.join(", "), Clone::clone);
            let names: Vec<&str> =
                hull.modules.iter().filter(|name| !name.is_empty()).take(6).map(String::as_str).collect();
            Err(Error::new(
                at::training::checkpoint_modules,
                format!("no module that the model calls is named {named}"),
                format!("its modules are called {}, ...; * stands for one part of a name", names.join(", ")),
            ))
        }
    }
}

impl Player {
    /// Loads the parameters and buffers of a scenario's hull.
    ///
    /// # Errors
    /// Sizes or a card that it was not recorded for.
    pub fn load(cx: &Rc<Context>, model: &HullModel, scenario: &Scenario, gpu: &Gpu) -> Result<Self> {
        let hull = Arc::clone(model.file()?);
        let axes = model.values_from_one(scenario.input.batch)?;
        let played = choose(&hull, scenario, gpu)?;
        let tape = played.tape();
        let values = values(&hull.exprs, &axes);
        let value = |expr: u32| values.get(expr as usize).copied().flatten();
        let of_exprs = |shape: &[u32]| ToldShape::new(shape.iter().map(|expr| value(*expr).unwrap_or(0)));
        let mut shapes: Vec<ToldShape> = hull.shapes.iter().map(|shape| of_exprs(shape)).collect();
        shapes.push(of_exprs(&[]));
        let mut all_bytes = Vec::with_capacity(tape.storages.len());
        for born in &tape.storages {
            let bytes = value(born.bytes).ok_or_else(|| {
                let op = hull.ops.get(born.op as usize).map_or("", String::as_str);
                let problem = format!("at these sizes a tensor of {op} would have no whole number of bytes");
                Error::new(at::model::hull, problem, "ask for sizes that the model takes")
            })?;
            all_bytes.push(bytes);
        }
        let ops = hull.ops.iter().map(|name| cx.name_op(name)).collect();
        let nodes = hull.nodes.iter().map(|name| cx.name_grad_fn(name)).collect();
        let modules = modules(cx, &hull.modules);
        let dtypes = hull.dtypes.iter().map(|name| dtype(name)).collect();
        let mut player = Self {
            tape: played.clone(),
            bytes: all_bytes,
            shapes,
            modules,
            ops,
            nodes,
            dtypes,
            loaded: Vec::new(),
            parameters: Vec::new(),
            left: Vec::new(),
            kept: Vec::new(),
            begun: false,
            now: Now::default(),
        };
        let mut trained = vec![None; tape.loaded as usize];
        for parameter in &tape.parameters {
            trained[parameter.storage as usize] = Some(parameter.trained);
        }
        for storage in 0..tape.loaded {
            let kind = if trained[storage as usize].is_some() { Kind::Parameter } else { Kind::Buffer };
            let tensor = player.come(cx, storage, Some(kind));
            let trains = trained[storage as usize] == Some(true);
            player.loaded.push(Some(if trains { tensor.into_leaf(false) } else { tensor }));
        }
        let parameter = |storage: u32| player.loaded.get(storage as usize).cloned().flatten();
        player.parameters = tape.parameters.iter().filter_map(|p| parameter(p.storage)).collect();
        Ok(player)
    }

    fn segment(&self) -> &Segment {
        &self.tape.tape().segments[self.now.segment]
    }

    /// A storage comes.
    fn come(&self, cx: &Rc<Context>, storage: u32, kind: Option<Kind>) -> Tensor {
        let born = self.tape.tape().storages[storage as usize];
        let none = self.shapes.len() - 1;
        cx.told(Told {
            bytes: self.bytes[storage as usize],
            op: self.ops[born.op as usize],
            grad_fn: self.nodes[born.node as usize],
            module: self.modules[born.module as usize],
            dtype: self.dtypes[born.dtype as usize],
            shape: &self.shapes[none.min(born.shape as usize)],
            kind,
        })
    }

    /// The input phase of a micro-batch.
    pub fn input(&mut self, cx: &Rc<Context>, accumulates: bool) {
        let segment = match (accumulates, self.begun) {
            (true, _) => 1,
            (false, false) => 0,
            (false, true) => 2,
        };
        self.begun = true;
        self.now = Now { segment, ..Now::default() };
        self.play(cx, 0, self.segment().begins[0] as usize);
    }

    /// Its forward, and what the loop does with the loss; answers what backward is called on.
    pub fn forward(&mut self, cx: &Rc<Context>, divided: bool, scaler: Option<&mut GradScaler>) -> Option<Tensor> {
        let [forward, backward] = self.segment().begins;
        self.play(cx, forward as usize, backward as usize);
        let place = (self.segment().loss - self.segment().first) as usize;
        let loss = self.now.held.get_mut(place)?;
        if let (true, Some(whole)) = (divided, loss.as_ref()) {
            // The name is bound anew: the loss before it goes.
            let part = ops::div_scalar(whole);
            *loss = Some(part);
        }
        let loss = loss.as_ref()?;
        scaler.map(|scaler| scaler.scale(loss))
    }

    /// Its backward, behind which gradients stand where they were.
    pub fn backward(&mut self, cx: &Rc<Context>, divided: bool, scaled: bool) {
        let begin = self.segment().begins[1] as usize;
        let behind = |from: usize, player: &Self| {
            let next = player.segment().steps[from..].iter().position(|step| *step == Step::Born);
            next.map_or(from, |at| from + at + 1)
        };
        let seeded = behind(begin, self);
        self.play(cx, begin, seeded);
        if self.segment().root.is_some() {
            let second = behind(seeded, self);
            self.play(cx, seeded, second.saturating_sub(1));
            self.loss_gradient(usize::from(divided) + usize::from(scaled));
            self.play(cx, second, self.segment().steps.len());
            return self.finish(cx);
        }
        // What is called before the recorded graph: the scaling's function, then the division's.
        for _ in 0..usize::from(divided) + usize::from(scaled) {
            // Each takes the place of the one it was made from, which nobody else holds.
            if let Some(gradient) = self.now.held.last_mut()
                && let Some(before) = gradient.take()
            {
                let next = ops::div_scalar(&before);
                if let Some(id) = self.now.ids.last_mut() {
                    *id = next.storage_id();
                }
                *gradient = Some(next);
            }
        }
        self.play(cx, seeded, self.segment().steps.len());
        self.finish(cx);
    }

    /// The gradient of the loss, which `functions` make of the one that backward began with, one after the other; with none of them it
    /// is that one, which backward's caller holds to the end.
    fn loss_gradient(&mut self, functions: usize) {
        let seed = self.now.held.last().cloned().flatten();
        let storage = self.segment().first + self.now.held.len() as u32;
        // What becomes a parameter's gradient, or lives on, would have been a copy.
        let stays =
            self.segment().gradients.contains(&Some(storage)) || self.segment().leaves.contains(&Way::Storage(storage));
        let mut gradient = None;
        for _ in 0..functions.max(usize::from(stays)) {
            gradient = gradient.as_ref().or(seed.as_ref()).map(ops::div_scalar);
        }
        let id = gradient.as_ref().or(seed.as_ref()).map_or(u32::MAX, Tensor::storage_id);
        drop(seed);
        self.now.ids.push(id);
        self.now.held.push(gradient);
    }

    fn play(&mut self, cx: &Rc<Context>, from: usize, to: usize) {
        let played = self.tape.clone();
        let segment = &played.tape().segments[self.now.segment];
        for (at, step) in (from..to).zip(&segment.steps[from..to]) {
            match *step {
                Step::Born => {
                    let storage = segment.first + self.now.held.len() as u32;
                    if segment.root == Some(storage) {
                        // The loop makes what it calls backward on.
                        self.now.ids.push(u32::MAX);
                        self.now.held.push(None);
                        continue;
                    }
                    let tensor = self.come(cx, storage, None);
                    self.now.ids.push(tensor.storage_id());
                    self.now.held.push(Some(tensor));
                }
                Step::Dropped(storage) => {
                    let place = match storage.checked_sub(segment.first) {
                        Some(index) => self.now.held.get_mut(index as usize),
                        None => self.loaded.get_mut(storage as usize),
                    };
                    drop(place.and_then(Option::take));
                }
                Step::Carried(index) => drop(self.left.get_mut(index as usize).and_then(Option::take)),
                Step::Kept(storage) => {
                    let tensor = self.at(cx, segment, storage);
                    if let Some(tensor) = &tensor {
                        cx.keep_told(tensor);
                    }
                    self.now.handles.push(tensor);
                }
                Step::LetGo(handle) => drop(self.now.handles.get_mut(handle as usize).and_then(Option::take)),
                Step::Taken(handle) => {
                    let tensor = self.now.handles.get(handle as usize).cloned().flatten();
                    self.now.taken.push(tensor);
                }
                Step::PutBack(number) => drop(self.now.taken.get_mut(number as usize).and_then(Option::take)),
                Step::Module(module) => self.now.stack.push(module),
                Step::Return => drop(self.now.stack.pop()),
                Step::Region | Step::RegionEnd | Step::Given(_) => {}
                Step::Product(bias) => cx.product_told(bias, at >= segment.begins[1] as usize),
            }
        }
    }

    /// Another reference to a storage that somebody holds, Python or not.
    fn at(&self, cx: &Rc<Context>, segment: &Segment, storage: u32) -> Option<Tensor> {
        match storage.checked_sub(segment.first) {
            Some(index) => cx.told_again(*self.now.ids.get(index as usize)?, self.shapes.last()?),
            None => self.loaded.get(storage as usize)?.clone(),
        }
    }

    /// Gradients take their places, and what is left is told apart from what stays.
    fn finish(&mut self, cx: &Rc<Context>) {
        let played = self.tape.clone();
        let segment = &played.tape().segments[self.now.segment];
        let mut now = std::mem::take(&mut self.now);
        let place = |storage: u32| storage.checked_sub(segment.first).map_or(usize::MAX, |index| index as usize);
        let mut gradients: BTreeMap<u32, Tensor> = BTreeMap::new();
        for storage in segment.gradients.iter().flatten() {
            if let Some(tensor) = now.held.get_mut(place(*storage)).and_then(Option::take) {
                cx.gradient_told(&tensor);
                gradients.insert(*storage, tensor);
            }
        }
        for (parameter, gradient) in self.parameters.iter().zip(&segment.gradients) {
            if let Some(tensor) = gradient.and_then(|storage| gradients.get(&storage)) {
                optim::set_gradient(parameter, Some(tensor.clone()));
            }
        }
        drop(gradients);
        self.left.clear();
        for way in &segment.leaves {
            let place = match *way {
                Way::Storage(storage) => now.held.get_mut(place(storage)),
                Way::Handle(handle) => now.handles.get_mut(handle as usize),
                Way::Taken(number) => now.taken.get_mut(number as usize),
            };
            self.left.push(place.and_then(Option::take));
        }
        let rest = now.held.into_iter().chain(now.handles).chain(now.taken).flatten();
        self.kept.extend(rest);
    }
}

/// The tree of modules, parents before their children; a number is an entry of the list it stands in.
fn modules(cx: &Rc<Context>, names: &[String]) -> Vec<ModuleId> {
    let mut known: BTreeMap<String, ModuleId> = BTreeMap::new();
    names
        .iter()
        .map(|name| {
            let (mut path, mut parent) = (String::new(), ModuleId::ROOT);
            for piece in name.split('.').filter(|piece| !piece.is_empty()) {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(piece);
                parent = *known.entry(path.clone()).or_insert_with(|| match piece.parse::<u32>() {
                    Ok(item) => cx.module(parent, String::new().into(), Some(item)),
                    Err(_) => cx.module(parent, piece.to_owned().into(), None),
                });
            }
            parent
        })
        .collect()
}
