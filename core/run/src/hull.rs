//! Playing a hull: its micro-batches in the place of a model's forward and backward.
//!
//! A storage lives as long as a [`Tensor`] refers to it: one that Python holds, one for each handle of autograd, one for each
//! that backward took out. What the loop does besides (dividing the loss, scaling it, the optimizer) is the loop's own.

mod choose;
mod load;
mod spread;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_ledger::hull::{Hull, Segment, Step, Tape, Way};
use plimsoll_ledger::{DType, GradFnId, Kind, ModuleId, OpId};
use plimsoll_torch::nn::Sharded;
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
    /// The parameters in the model's order, without those that the model puts others in place of: of a quantized layer the bias, which its
    /// first forward casts for good.
    pub parameters: Vec<Tensor>,
    /// All of them, for who wraps the model as it was loaded.
    pub listed: Vec<Tensor>,
    /// How many numbers [`Self::parameters`] stand for beside their own: biases that are no more among them, and what is packed by two.
    pub packed: u64,
    /// Those that are trained, by their numbers in the recording.
    trained: Vec<Option<Tensor>>,
    /// The same as they are cut over several cards, where they are.
    pub sharded: Vec<Sharded>,
    /// What the last micro-batch left for the next one to let go of.
    left: Vec<Option<Tensor>>,
    /// What nothing lets go of.
    kept: Vec<Tensor>,
    /// Of each storage what its kernel was given, where that holds something while it runs.
    kernels: Vec<Option<Rc<ops::ToldKernel>>>,
    /// Of each operator the kernel of attention whose backward it is.
    attention: Vec<Option<ops::Kernel>>,
    /// Storages that are the gradients of several parameters.
    shared: Vec<u32>,
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
    /// How many calls and returns there were in this forward.
    turns: u32,
    /// Whether what is called next is given something that takes a gradient.
    takes: bool,
    /// Which parameters have their gradients.
    arrived: Vec<bool>,
    /// Storages that a fused attention's backward has made so far: the gradients of queries, keys and values.
    attention: Vec<u32>,
}

impl Player {
    fn segment(&self) -> &Segment {
        &self.tape.tape().segments[self.now.segment]
    }

    /// A shape of the hull's by its number; one of no dimensions where there is none.
    fn shape(&self, number: u32) -> &ToldShape {
        &self.shapes[(self.shapes.len() - 1).min(number as usize)]
    }

    /// The sizes of a storage.
    fn sizes(&self, storage: u32) -> &[u64] {
        self.shape(self.tape.tape().storages[storage as usize].shape).sizes()
    }

    /// A storage comes.
    fn come(&self, cx: &Rc<Context>, storage: u32, kind: Option<Kind>) -> Tensor {
        let born = self.tape.tape().storages[storage as usize];
        let bytes = self.bytes[storage as usize];
        let kernel = self.kernel(storage);
        cx.told(Told {
            bytes: kernel.and_then(|kernel| kernel.keeps(cx)).map_or(bytes, |kept| kept.max(bytes)),
            op: self.ops[born.op as usize],
            grad_fn: self.nodes[born.node as usize],
            module: self.modules[born.module as usize],
            dtype: self.dtypes[born.dtype as usize],
            shape: self.shape(born.shape),
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
        self.now = Now { segment, arrived: vec![false; self.trained.len()], ..Now::default() };
        self.play(cx, 0, self.segment().begins[0] as usize);
    }

    /// Where the model itself is called: the outermost call that is its own.
    fn call(&self) -> Option<usize> {
        let [forward, backward] = self.segment().begins.map(|at| at as usize);
        let root =
            |step: &Step| matches!(step, Step::Module(module) if self.modules[*module as usize] == ModuleId::ROOT);
        self.segment().steps[forward..backward].iter().position(root).map(|at| forward + at)
    }

    /// Its forward, and what the loop does with the loss; answers what backward is called on. `called` is what a wrapper does before
    /// the model itself is called.
    pub fn forward(
        &mut self,
        cx: &Rc<Context>,
        divided: bool,
        scaler: Option<&mut GradScaler>,
        called: impl FnOnce(),
    ) -> Option<Tensor> {
        let [forward, backward] = self.segment().begins;
        let (forward, backward) = (forward as usize, backward as usize);
        let call = self.call().unwrap_or(backward);
        self.play(cx, forward, call);
        called();
        self.play(cx, call, backward);
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

    /// The loss of this micro-batch.
    pub fn loss(&self) -> Option<Tensor> {
        self.now.held.get((self.segment().loss - self.segment().first) as usize).cloned().flatten()
    }

    /// Its backward, behind which gradients stand where they were; `functions` of the loop's own stand behind the loss.
    pub fn backward(&mut self, cx: &Rc<Context>, functions: usize) {
        let begin = self.segment().begins[1] as usize;
        let behind = |from: usize, player: &Self| {
            let next = player.segment().steps[from..].iter().position(|step| *step == Step::Born);
            next.map_or(from, |at| from + at + 1)
        };
        let seeded = behind(begin, self);
        self.play(cx, begin, seeded);
        if self.segment().root.is_some() {
            // Backward's caller lets go of it when hooks have done their last, which a recording without them cannot tell.
            let seed = self.now.held.last().cloned().flatten();
            let second = behind(seeded, self);
            self.play(cx, seeded, second.saturating_sub(1));
            self.loss_gradient(functions);
            self.play(cx, second, self.segment().steps.len());
            cx.finishes_told();
            drop(seed);
            return self.finish(cx);
        }
        // What is called before the recorded graph: the scaling's function, then the division's.
        for _ in 0..functions {
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
        cx.finishes_told();
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

    /// Whether autograd's thread makes the storage that comes next: in forward, of a gradient that the model asks for.
    fn differentiates(&self, segment: &Segment) -> bool {
        let next = self.tape.tape().storages.get(segment.first as usize + self.now.held.len());
        next.and_then(|born| self.nodes.get(born.node as usize)).is_some_and(|node| *node != GradFnId::default())
    }

    fn play(&mut self, cx: &Rc<Context>, from: usize, to: usize) {
        let played = self.tape.clone();
        let segment = &played.tape().segments[self.now.segment];
        // What an operator holds from before the first storage that it makes to the last one.
        let mut before: Vec<(u32, ops::Scratch<'_>)> = Vec::new();
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
                    before.extend(self.opens(cx, storage));
                    let tensor = self.come(cx, storage, None);
                    self.now.ids.push(tensor.storage_id());
                    self.now.held.push(Some(tensor));
                    self.runs(cx, storage);
                    before.retain(|(last, _)| *last > storage);
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
                Step::Takes => self.now.takes = true,
                Step::Module(module) => {
                    self.now.stack.push(module);
                    let takes = std::mem::take(&mut self.now.takes);
                    self.now.turns += u32::from(at < segment.begins[1] as usize);
                    cx.enters_told(self.modules[module as usize], self.now.turns, takes);
                }
                Step::Return => {
                    self.now.turns += u32::from(at < segment.begins[1] as usize);
                    if let Some(module) = self.now.stack.pop() {
                        cx.leaves_told(self.modules[module as usize], self.now.turns);
                    }
                }
                Step::Region | Step::RegionEnd | Step::Given(_) => {}
                Step::Reached(turns) => cx.reaches_told(turns),
                Step::Arrived(parameter) => self.arrived(cx, segment, parameter as usize),
                Step::Product(bias) => {
                    let backward = at >= segment.begins[1] as usize || self.differentiates(segment);
                    cx.product_told(bias, backward);
                }
            }
        }
    }

    /// What the operator holds whose first storage this is, each with the storage behind which it goes.
    fn opens<'c>(&self, cx: &'c Rc<Context>, first: u32) -> Vec<(u32, ops::Scratch<'c>)> {
        let mut places = first..=first + ops::ToldKernel::MOST_BEFORE;
        let found = places.find_map(|last| {
            let kernel = self.kernel(last)?;
            (kernel.before() == Some(last - first)).then_some((last, kernel))
        });
        let Some((last, kernel)) = found else { return Vec::new() };
        let mut further: Vec<&ops::ToldKernel> = Vec::new();
        while let Some(next) = self.kernel(last + 1 + further.len() as u32)
            && next.continues(further.last().unwrap_or(&kernel.as_ref()))
        {
            further.push(next);
        }
        let begun = last.checked_sub(1).and_then(|before| self.kernel(before));
        let begins = !begun.is_some_and(|before| kernel.continues(before));
        kernel.holds(cx, begins, &further).into_iter().map(|(copy, behind)| (last + behind, copy)).collect()
    }

    fn kernel(&self, storage: u32) -> Option<&Rc<ops::ToldKernel>> {
        self.kernels.get(storage as usize).and_then(Option::as_ref)
    }

    /// What the kernel holds while it runs that has made this storage, or writes to it.
    fn runs(&mut self, cx: &Rc<Context>, storage: u32) {
        let kernel = self.kernel(storage).cloned();
        self.attends(cx, storage);
        if let Some(kernel) = kernel {
            kernel.run(cx, self.shape(self.tape.tape().storages[storage as usize].shape).geometry());
        }
    }

    /// What a fused attention's backward holds while it runs, behind the gradients that it has made.
    fn attends(&mut self, cx: &Rc<Context>, storage: u32) {
        let op = self.tape.tape().storages[storage as usize].op;
        let Some(kernel) = self.attention.get(op as usize).copied().flatten() else { return };
        self.now.attention.push(storage);
        if let [queries, keys, _] = self.now.attention[..] {
            self.now.attention.clear();
            let queries_sizes = self.sizes(queries);
            let keys_sizes = self.sizes(keys);
            let dtype = self.dtypes[self.tape.tape().storages[queries as usize].dtype as usize];
            ops::attention_backward_told(cx, kernel, queries_sizes, keys_sizes, dtype);
        }
    }

    /// A parameter has its gradient: what it was told to be becomes that.
    fn arrived(&mut self, cx: &Rc<Context>, segment: &Segment, number: usize) {
        let Some(parameter) = self.trained.get(number).cloned().flatten() else { return };
        if let Some(arrived) = self.now.arrived.get_mut(number) {
            *arrived = true;
        }
        if let Some(storage) = segment.gradients.get(number).copied().flatten() {
            // Python's own reference goes where the micro-batch ends: another parameter's gradient may lie in it as well.
            let gradient = self.at(cx, segment, storage);
            if let Some(gradient) = &gradient {
                cx.gradient_told(gradient);
            }
            let place = storage.checked_sub(segment.first).map_or(usize::MAX, |index| index as usize);
            if self.shared.binary_search(&storage).is_err() {
                drop(self.now.held.get_mut(place).and_then(Option::take));
            }
            optim::set_gradient(&parameter, gradient);
        }
        cx.arrived_told(&parameter);
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
        // A file of an older plimsoll does not say when each has come.
        for ((parameter, gradient), arrived) in self.trained.iter().zip(&segment.gradients).zip(&now.arrived) {
            let Some(parameter) = parameter else { continue };
            if let Some(tensor) = gradient.filter(|_| !arrived).and_then(|storage| gradients.get(&storage)) {
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
