//! `FullyShardedDataParallel` (`torch/distributed/fsdp/_runtime_utils.py`): the parameters of a module as one flat one, of which
//! every card keeps a part.
//!
//! A module's parameters are views of its flat one. Their gradients flow back through a node that was made when the module
//! was called (`SplitWithSizesBackward`), and so has a lower number than all of the module's own: it runs last of them.
//!
//! The first rank stands for all: no rank holds a larger part. With `use_orig_params` another took up to 8 KiB more in
//! four runs on hollow cards; why is not known.

mod unit;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use plimsoll_ground::{Error, Reason};
use plimsoll_scenario::{BackwardPrefetch, LoadFrom, Parallel, ShardingStrategy, Wrap};
use plimsoll_torch::nn::Sharded;
use plimsoll_torch::tensor::{Context, DType, Hooks, ModuleId, Tensor};
use plimsoll_torch::{Batch, ops};

use crate::dtype;
use crate::hosted::{Hosted, Loaded};
use crate::span::{Progress, Span};
use crate::wrapper::{Wrapper, places};
use unit::{Shared, Unit};

/// A model under `FullyShardedDataParallel`, on the first rank.
#[derive(Debug)]
pub struct Fsdp1 {
    /// The root's first, if it has parameters of its own; the others in the order of their modules.
    units: Vec<(ModuleId, Unit)>,
    /// Which unit a module is.
    owners: BTreeMap<ModuleId, usize>,
    shared: Shared,
    prefetch: BackwardPrefetch,
    /// `MixedPrecision.param_dtype`.
    param_dtype: Option<DType>,
    /// Units in the order in which their forwards ended.
    order: RefCell<Vec<usize>>,
    /// Units whose forward is running, and how often their modules call themselves.
    running: RefCell<Vec<(ModuleId, u32)>>,
    forward: Cell<bool>,
    begun: Cell<bool>,
    root: Cell<Span>,
    root_reached: Cell<bool>,
    /// From which node of backward down to which nothing changes.
    calm: Cell<(u32, u32)>,
    reduces: Cell<bool>,
    leaves: Vec<Tensor>,
}

/// Of a model's parameters those whose flat one takes a gradient: their blocks, and as `None` the rest of the model.
pub fn flat(sharded: &[Sharded], parallel: &Parallel) -> BTreeSet<Option<ModuleId>> {
    // Each that is trained has a flat one to itself.
    if parallel.fsdp.wrap == Wrap::Peft {
        return BTreeSet::new();
    }
    let unit = |p: &Sharded| p.block.filter(|_| parallel.fsdp.wrap != Wrap::Root);
    let trained: BTreeSet<_> = sharded.iter().filter(|p| p.shard.requires_grad()).map(unit).collect();
    sharded.iter().filter(|p| trained.contains(&unit(p))).map(|p| p.block).collect()
}

/// When `_recursive_wrap` comes to each block: behind what its last parameter is of, and of blocks within one another, where there may be
/// some, to the innermost first.
fn turns(
    cx: &Context,
    grouped: &[(ModuleId, Vec<Sharded>)],
    places: &BTreeMap<u32, usize>,
    nested: bool,
) -> BTreeMap<ModuleId, (usize, Reverse<usize>)> {
    let mut turns: BTreeMap<ModuleId, (usize, Reverse<usize>)> = BTreeMap::new();
    for member in grouped.iter().flat_map(|(_, members)| members) {
        let place = places.get(&member.whole.storage_id()).copied().unwrap_or(usize::MAX);
        if let Some(block) = member.block {
            let turn = turns.entry(block).or_default();
            turn.0 = turn.0.max(place);
        }
    }
    if nested {
        let paths: Vec<(String, usize)> = turns.iter().map(|(block, (last, _))| (cx.path(*block), *last)).collect();
        for (turn, (outer, _)) in turns.values_mut().zip(&paths) {
            let within =
                |(path, _): &&(String, usize)| path.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'));
            let last = paths.iter().filter(within).map(|(_, last)| *last).max();
            *turn = (turn.0.max(last.unwrap_or(0)), Reverse(outer.len()));
        }
    }
    turns
}

impl Fsdp1 {
    /// `FullyShardedDataParallel(model, device_id=...)` of a model in the machine's memory, every block a unit of its own. `order` are the
    /// whole parameters as `parameters()` lists them.
    pub fn wrap(cx: &Rc<Context>, sharded: Vec<Sharded>, order: &[Tensor], parallel: &Parallel) -> Rc<Self> {
        let module = |name: &'static str| cx.module(ModuleId::ROOT, name.into(), None);
        let keys = &parallel.fsdp;
        let places = places(order);
        let place = |p: &Sharded| places.get(&p.whole.storage_id()).copied();
        let mut listed: Vec<(usize, Sharded)> =
            sharded.into_iter().map(|p| (place(&p).unwrap_or(usize::MAX), p)).collect();
        listed.sort_by_key(|(place, _)| *place);
        let shared = Shared {
            ranks: parallel.gpus,
            strategy: keys.sharding_strategy,
            originals: keys.use_orig_params,
            offloaded: keys.cpu_offload,
            hosted: Hosted::new(true),
            // Nothing said of reducing: what is computed with (`_init_param_reduce_dtypes`).
            reduced: dtype(keys.reduce_dtype),
            gathering: module("unshard"),
            reducing: module("reduce_scatter"),
        };
        let mut grouped: Vec<(ModuleId, Vec<Sharded>)> = Vec::new();
        for (_, parameter) in listed {
            let alone = (keys.wrap == Wrap::Peft && parameter.shard.requires_grad()).then_some(parameter.module);
            let block = parameter.block.filter(|_| keys.wrap != Wrap::Root);
            let owner = alone.or(block).unwrap_or(ModuleId::ROOT);
            match grouped.iter_mut().find(|(module, _)| *module == owner) {
                Some((_, members)) => members.push(parameter),
                None => grouped.push((owner, vec![parameter])),
            }
        }
        // What is within another is wrapped before it, and blocks before the root, with what is left.
        let turns = turns(cx, &grouped, &places, !keys.modules.is_empty());
        grouped.sort_by_key(|(owner, members)| {
            let block = members.first().and_then(|member| member.block);
            let turn = block.and_then(|block| turns.get(&block).copied());
            (*owner == ModuleId::ROOT, turn, block == Some(*owner))
        });
        // What lies on the card already, whole, is not moved there unit by unit.
        let on_card = keys.load == LoadFrom::Cuda;
        let members = grouped.iter().flat_map(|(_, members)| members).filter(|_| !on_card);
        let loaded = RefCell::new(Loaded::of(cx, members.map(|p| (&p.whole, p.shard.dtype()))));
        let placed: Vec<Option<Vec<Tensor>>> =
            grouped.iter().map(|(_, members)| on_card.then(|| Unit::place(cx, members, &loaded))).collect();
        let mut placed = placed.into_iter();
        let load = |(owner, members): (ModuleId, Vec<Sharded>)| {
            let placed = placed.next().flatten();
            (owner, Unit::load(cx, members, (placed, &loaded), &shared, owner == ModuleId::ROOT))
        };
        let mut units: Vec<(ModuleId, Unit)> = grouped.into_iter().map(load).collect();
        units.sort_by_key(|(owner, _)| *owner != ModuleId::ROOT);
        let leaves = units.iter().flat_map(|(_, unit)| unit.leaves.clone()).collect();
        let owners = units.iter().enumerate().map(|(index, (module, _))| (*module, index)).collect();
        let fsdp = Rc::new(Self {
            units,
            owners,
            shared,
            prefetch: keys.backward_prefetch,
            param_dtype: dtype(keys.param_dtype),
            order: RefCell::default(),
            running: RefCell::default(),
            forward: Cell::new(false),
            begun: Cell::new(false),
            root: Cell::default(),
            root_reached: Cell::new(false),
            calm: Cell::new((0, u32::MAX)),
            reduces: Cell::new(true),
            leaves,
        });
        cx.set_hooks(Rc::<Self>::clone(&fsdp));
        fsdp
    }

    fn unit(&self, module: ModuleId) -> Option<(usize, &Unit)> {
        let index = *self.owners.get(&module)?;
        self.units.get(index).map(|(_, unit)| (index, unit))
    }

    /// `_prefetch_handle`: the unit that ran before this one, unless backward has it already.
    fn ahead(&self, cx: &Rc<Context>, index: usize) {
        let order = self.order.borrow();
        let before = order.iter().position(|of| *of == index).and_then(|place| place.checked_sub(1));
        if let Some((_, unit)) = before.and_then(|place| order.get(place)).and_then(|ahead| self.units.get(*ahead))
            && unit.progress.get() == Progress::Waiting
        {
            unit.unshard(cx, &self.shared);
        }
    }

    /// `_pre_backward_hook`.
    fn pre_backward(&self, cx: &Rc<Context>, unit: &Unit, index: usize) {
        unit.progress.set(Progress::Begun);
        unit.unshard(cx, &self.shared);
        if self.prefetch == BackwardPrefetch::Pre {
            self.ahead(cx, index);
        }
    }

    /// The gradients of a unit have come: `_post_backward_hook`.
    fn post_backward(&self, cx: &Rc<Context>, unit: &Unit, index: usize) {
        unit.progress.set(Progress::Done);
        let (any, added) = unit.gather_gradients(cx, &self.shared);
        let frees = self.reduces.get() || self.shared.strategy == ShardingStrategy::FullShard;
        unit.reshard(&self.shared, frees);
        if self.prefetch == BackwardPrefetch::Post {
            self.ahead(cx, index);
        }
        if any && self.reduces.get() {
            unit.reduce(cx, &self.shared);
        }
        drop(added);
    }

    /// Refuses a unit of which a checkpoint is only a part: `AccumulateGrad` of its flat parameter runs in the first one's backward, and its
    /// hook lets the whole of it go. Seen of Swin with PyTorch 2.11 on a hollow card.
    fn refuse(&self, cx: &Context, module: ModuleId) {
        cx.refuse(|| {
            let problem = format!(
                "FSDP1 takes the gradients of {} for there when the first of its reentrant checkpoints has gone backward, and PyTorch fails at the \
                 next, which finds no weights",
                cx.path(module)
            );
            let hint = "use full, which is use_reentrant=False, or fsdp2";
            Error::new("training.checkpointing", problem, hint).because(Reason::ReadyTwice)
        });
    }

    /// The lowest node from `sequence` down until which nothing changes: where a unit that waits ends, or one that has begun begins.
    fn next_change(&self, sequence: u32) -> u32 {
        let change = |(_, unit): &(ModuleId, Unit)| {
            let span = unit.span.get();
            match unit.progress.get() {
                Progress::Waiting => Some(span.end).filter(|end| *end <= sequence),
                Progress::Begun => Some(span.begin).filter(|begin| *begin <= sequence),
                Progress::Done => None,
            }
        };
        let root = Some(self.root.get().end).filter(|end| *end <= sequence && !self.root_reached.get());
        self.units.iter().filter_map(change).chain(root).max().unwrap_or(0)
    }

    /// Units whose gradients have all come before the node of this number runs, the last of them first.
    fn settle(&self, cx: &Rc<Context>, sequence: u32) {
        loop {
            let begun = |(_, (_, unit)): &(usize, &(ModuleId, Unit))| {
                unit.progress.get() == Progress::Begun && sequence < unit.span.get().begin
            };
            let last = self.units.iter().enumerate().filter(begun).max_by_key(|(_, (_, unit))| unit.span.get().begin);
            let Some((index, (_, unit))) = last else { return };
            self.post_backward(cx, unit, index);
        }
    }
}

impl Wrapper for Fsdp1 {
    fn parameters(&self) -> &[Tensor] {
        &self.leaves
    }

    fn prepare(&self, cx: &Rc<Context>) {
        for (_, unit) in &self.units {
            if self.begun.get() {
                unit.reset();
            } else {
                unit.begin(cx, &self.shared);
            }
        }
        self.begun.set(true);
    }

    fn hosted(&self) -> Vec<Tensor> {
        self.units.iter().flat_map(|(_, unit)| unit.hosted()).collect()
    }

    /// Of the original parameters a unit keeps the flat gradient; what is not cut at all stays whole.
    fn repeats(&self, every: bool) -> bool {
        every && self.shared.shards() && !self.shared.originals && !self.shared.offloaded
    }

    fn before_forward(&self, _: &Rc<Context>, batch: Option<&Batch>, reduces: bool) -> Option<Batch> {
        self.reduces.set(reduces);
        self.forward.set(true);
        self.root_reached.set(false);
        // No node is calm before it was looked at.
        self.calm.set((0, u32::MAX));
        self.order.borrow_mut().clear();
        let batch = batch?;
        let inputs = batch.inputs();
        let dtype = self.param_dtype.filter(|dtype| inputs.dtype().is_float() && inputs.dtype() != *dtype)?;
        Some(batch.with_inputs(ops::to(inputs, dtype)))
    }
}

impl Hooks for Fsdp1 {
    fn enters(&self, cx: &Rc<Context>, module: ModuleId) -> bool {
        let known = module == ModuleId::ROOT || self.unit(module).is_some();
        if !known || !self.forward.get() {
            return false;
        }
        if let Some((_, depth)) = self.running.borrow_mut().iter_mut().find(|(running, _)| *running == module) {
            *depth += 1;
            return true;
        }
        self.running.borrow_mut().push((module, 1));
        let begin = cx.next_node();
        if module == ModuleId::ROOT {
            self.root.set(Span { begin, ..Span::default() });
        }
        if let Some((index, unit)) = self.unit(module) {
            unit.unshard(cx, &self.shared);
            // Of one that is called again the gradients have come when those of the first call have: `AccumulateGrad` runs once.
            let first = if self.order.borrow().contains(&index) { unit.span.get().begin } else { begin };
            unit.span.set(Span { begin: first, end: begin, inputs_take_gradients: true });
        }
        true
    }

    fn leaves(&self, cx: &Rc<Context>, module: ModuleId) -> bool {
        let mut running = self.running.borrow_mut();
        let Some(at) = running.iter().position(|(running, _)| *running == module) else { return false };
        if let Some((_, depth)) = running.get_mut(at) {
            *depth -= 1;
            if *depth > 0 {
                return true;
            }
        }
        running.remove(at);
        drop(running);
        let end = cx.next_node();
        if let Some((index, unit)) = self.unit(module) {
            // The root's is about to be used by backward.
            unit.reshard(&self.shared, self.shared.strategy == ShardingStrategy::FullShard && !unit.root);
            // It is wrapped around the layer and its checkpoint: of a reentrant one, whose forward makes no node, there is the node before.
            let span = unit.span.get();
            let begin = span.begin.saturating_sub(u32::from(cx.is_reentrant() && span.begin == end));
            unit.span.set(Span { begin, end, ..span });
            self.order.borrow_mut().push(index);
        }
        if module == ModuleId::ROOT {
            self.root.set(Span { end, ..self.root.get() });
            self.forward.set(false);
        }
        true
    }

    fn reaches(&self, cx: &Rc<Context>, sequence: u32) -> bool {
        // A leaf's own node.
        if sequence == u32::MAX {
            return false;
        }
        let (from, to) = self.calm.get();
        if (to..=from).contains(&sequence) {
            return false;
        }
        self.settle(cx, sequence);
        if sequence < self.root.get().end && !self.root_reached.replace(true) {
            // Gradients that went between forward and backward.
            self.units.iter().for_each(|(_, unit)| unit.reset());
            if let Some((index, unit)) = self.unit(ModuleId::ROOT) {
                self.pre_backward(cx, unit, index);
            }
        }
        for (index, (module, unit)) in self.units.iter().enumerate() {
            let span = unit.span.get();
            let within = (span.begin..span.end).contains(&sequence) && *module != ModuleId::ROOT;
            if within && unit.progress.get() == Progress::Waiting {
                self.pre_backward(cx, unit, index);
            }
        }
        self.calm.set((sequence, self.next_change(sequence)));
        true
    }

    /// What a reentrant checkpoint computed again has brought its unit's gradients: they came by views that were made before it.
    fn went_backward(&self, cx: &Rc<Context>, sequence: u32) -> bool {
        self.calm.set((0, u32::MAX));
        for (index, (module, unit)) in self.units.iter().enumerate() {
            let span = unit.span.get();
            if unit.progress.get() == Progress::Begun && !unit.root {
                if span.begin != sequence || span.end - span.begin != 1 {
                    self.refuse(cx, *module);
                }
                self.post_backward(cx, unit, index);
            }
        }
        true
    }

    /// `_post_backward_final_callback`, after the nodes that are left: those of modules that were called first.
    fn finishes(&self, cx: &Rc<Context>) {
        for (_, unit) in &self.units {
            let span = unit.span.get();
            unit.span.set(Span { begin: span.begin.saturating_add(1), ..span });
        }
        self.settle(cx, 0);
        for (_, unit) in &self.units {
            unit.reshard(&self.shared, self.reduces.get() || self.shared.strategy == ShardingStrategy::FullShard);
            unit.finalize(&self.shared);
        }
    }
}
