//! Playing a hull: its micro-batches in the place of a model's forward and backward.
//!
//! A storage lives as long as a [`Tensor`] refers to it: one that Python holds, one for each handle of autograd, one for each
//! that backward took out. What the loop does besides (dividing the loss, scaling it, the optimizer) is the loop's own.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_catalog::{Gpu, Vendor};
use plimsoll_ground::{Error, Result};
use plimsoll_ledger::hull::{Hull, Segment, Step, Tape, Way, values};
use plimsoll_ledger::{DType, GradFnId, Kind, ModuleId, OpId};
use plimsoll_scenario::{HullModel, Scenario, at};
use plimsoll_torch::ops;
use plimsoll_torch::optim::{self, GradScaler};
use plimsoll_torch::tensor::{Context, Tensor, Told};

/// A hull at the sizes that are asked, its parameters loaded.
#[derive(Debug)]
pub struct Player {
    hull: Arc<Hull>,
    tape: usize,
    /// Bytes and sizes of every storage.
    sizes: Vec<(u64, Vec<u64>)>,
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
fn choose(hull: &Hull, scenario: &Scenario, gpu: &Gpu) -> Result<usize> {
    let precision = scenario.training.precision.as_str();
    let attends = |tape: &Tape| {
        tape.storages
            .iter()
            .any(|born| hull.ops.get(born.op as usize).is_some_and(|op| op.starts_with("_scaled_dot_product")))
    };
    let capability = gpu.compute_capability.filter(|_| gpu.vendor == Vendor::Nvidia).map(class);
    let fits = |tape: &Tape| capability.is_some_and(|c| tape.cards.contains(&c)) || !attends(tape);
    let known = hull.tapes.iter().any(|tape| tape.precision == precision);
    let batch = scenario.input.batch;
    hull.position(batch, |tape| tape.precision == precision && fits(tape)).ok_or_else(|| {
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
    })
}

impl Player {
    /// Loads the parameters and buffers of a scenario's hull.
    ///
    /// # Errors
    /// Sizes or a card that it was not recorded for.
    pub fn load(cx: &Rc<Context>, model: &HullModel, scenario: &Scenario, gpu: &Gpu) -> Result<Self> {
        let hull = Arc::clone(model.file()?);
        let axes = model.values_from_one(scenario.input.batch)?;
        let number = choose(&hull, scenario, gpu)?;
        let Some(tape) = hull.tapes.get(number) else {
            return Err(Error::new("model.hull", "it has no such tape", "report it"));
        };
        let values = values(&hull.exprs, &axes);
        let value = |expr: u32| values.get(expr as usize).copied().flatten();
        let mut sizes = Vec::with_capacity(tape.storages.len());
        for born in &tape.storages {
            let bytes = value(born.bytes).ok_or_else(|| {
                let op = hull.ops.get(born.op as usize).map_or("", String::as_str);
                let problem = format!("at these sizes a tensor of {op} would have no whole number of bytes");
                Error::new(at::model::hull, problem, "ask for sizes that the model takes")
            })?;
            let shape = hull.shapes.get(born.shape as usize).map(Vec::as_slice).unwrap_or_default();
            sizes.push((bytes, shape.iter().map(|expr| value(*expr).unwrap_or(0)).collect()));
        }
        let ops = hull.ops.iter().map(|name| cx.name_op(name)).collect();
        let nodes = hull.nodes.iter().map(|name| cx.name_grad_fn(name)).collect();
        let modules = modules(cx, &hull.modules);
        let dtypes = hull.dtypes.iter().map(|name| dtype(name)).collect();
        let mut player = Self {
            tape: number,
            sizes,
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
            hull: Arc::clone(&hull),
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

    fn tape(&self) -> &Tape {
        &self.hull.tapes[self.tape]
    }

    fn segment(&self) -> &Segment {
        &self.tape().segments[self.now.segment]
    }

    /// A storage comes.
    fn come(&self, cx: &Rc<Context>, storage: u32, kind: Option<Kind>) -> Tensor {
        let born = self.tape().storages[storage as usize];
        let (bytes, sizes) = &self.sizes[storage as usize];
        cx.told(Told {
            bytes: *bytes,
            op: self.ops[born.op as usize],
            grad_fn: self.nodes[born.node as usize],
            module: self.modules[born.module as usize],
            dtype: self.dtypes[born.dtype as usize],
            sizes,
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
        let first = self.segment().steps[begin..].iter().position(|step| *step == Step::Born);
        let seeded = first.map_or(begin, |at| begin + at + 1);
        self.play(cx, begin, seeded);
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

    fn play(&mut self, cx: &Rc<Context>, from: usize, to: usize) {
        let hull = Arc::clone(&self.hull);
        let tape = &hull.tapes[self.tape];
        let segment = &tape.segments[self.now.segment];
        for (at, step) in (from..to).zip(&segment.steps[from..to]) {
            match *step {
                Step::Born => {
                    let storage = segment.first + self.now.held.len() as u32;
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
                Step::Product(bias) => cx.product_told(bias, at >= segment.begins[1] as usize),
            }
        }
    }

    /// Another reference to a storage that somebody holds, Python or not.
    fn at(&self, cx: &Rc<Context>, segment: &Segment, storage: u32) -> Option<Tensor> {
        match storage.checked_sub(segment.first) {
            Some(index) => cx.told_again(*self.now.ids.get(index as usize)?),
            None => self.loaded.get(storage as usize)?.clone(),
        }
    }

    /// Gradients take their places, and what is left is told apart from what stays.
    fn finish(&mut self, cx: &Rc<Context>) {
        let hull = Arc::clone(&self.hull);
        let segment = &hull.tapes[self.tape].segments[self.now.segment];
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
