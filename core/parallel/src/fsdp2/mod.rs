//! `fully_shard` (`torch/distributed/fsdp/_fully_shard/`): parameters, gradients and optimizer state cut over the cards.
//!
//! A group of parameters is gathered when its module is called, and again when backward reaches it; its gradients are
//! reduced when backward has left it. The hooks of PyTorch sit on a module's inputs and outputs; here the numbers of its
//! graph's nodes stand for them: backward runs nodes in falling order, so a group's output is reached with the first node
//! below its end, and its input with the first one below its begin.
//!
//! The first rank stands for all: no rank holds a larger shard.

mod group;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_scenario::{LoadFrom, Parallel, ParallelStrategy, Reshard, Wrap};
use plimsoll_torch::nn::{ShardPlan, Sharded};
use plimsoll_torch::tensor::{Context, DType, Hooks, ModuleId, Tensor};
use plimsoll_torch::{Batch, ops};

use crate::dtype;
use crate::hosted::{Hosted, Loaded};
use crate::span::{Progress, Span};
use crate::wrapper::{Wrapper, places};
use group::{Group, Shared};

/// A model under `fully_shard`, on the first rank.
#[derive(Debug)]
pub struct Fsdp2 {
    /// The root's group first, if it has parameters of its own; the others in the order of their modules.
    groups: Vec<(Vec<ModuleId>, Group)>,
    /// Which group a module is one of.
    owners: BTreeMap<ModuleId, usize>,
    shared: Shared,
    /// `MixedPrecisionPolicy.param_dtype`.
    param_dtype: Option<DType>,
    /// Groups in the order in which their forwards ended, of which the last are taken off as backward reaches them.
    order: RefCell<Vec<usize>>,
    /// Groups whose forward is running, and how often their modules call themselves.
    running: RefCell<Vec<(ModuleId, u32)>>,
    forward: Cell<bool>,
    /// Whether checkpoints call modules once more in backward as in the forward (`use_reentrant=True`).
    reentrant: Cell<bool>,
    /// The first node of this forward.
    first_node: Cell<u32>,
    root: Cell<Span>,
    root_reached: Cell<bool>,
    /// From which node on down to which one no group begins or ends: most of them.
    calm: Cell<(u32, u32)>,
    reduces: Cell<bool>,
    shards: Vec<Tensor>,
}

/// Cards that share one model: all of them, or of hybrid sharding a group.
fn sharing(parallel: &Parallel) -> u64 {
    parallel.gpus / parallel.replicate.max(1)
}

/// How the parameters of a model are cut that `parallel` spreads.
pub fn plan(parallel: &Parallel) -> ShardPlan {
    let fsdp = &parallel.fsdp;
    // Others load a model as a whole.
    let whole = parallel.strategy != ParallelStrategy::Fsdp2;
    let later = fsdp.cpu_offload || whole || fsdp.load != LoadFrom::Meta;
    let deepspeed = parallel.strategy.is_zero();
    ShardPlan {
        ranks: sharing(parallel),
        gathered: dtype(fsdp.param_dtype),
        offloaded: later,
        wide_buffers: deepspeed,
        flat: BTreeSet::new(),
        parts: !deepspeed,
        passing: false,
    }
}

impl Fsdp2 {
    /// `fully_shard` of every block and of the root, on a model whose parameters were cut as [`plan`] says. `order` are the
    /// whole parameters as `parameters()` lists them.
    pub fn wrap(cx: &Rc<Context>, sharded: Vec<Sharded>, order: &[Tensor], parallel: &Parallel) -> Rc<Self> {
        let module = |name: &'static str| cx.module(ModuleId::ROOT, name.into(), None);
        let keys = &parallel.fsdp;
        // A dtype that is the gradients' own says nothing (`init_dtype_attrs`).
        let gathered = |p: &Sharded| dtype(keys.param_dtype).unwrap_or_else(|| p.shard.dtype());
        let reduce_dtype = dtype(keys.reduce_dtype).filter(|reduce| sharded.iter().any(|p| gathered(p) != *reduce));
        let places = places(order);
        let place = |p: &Sharded| places.get(&p.whole.storage_id()).copied();
        let mut listed: Vec<Sharded> = sharded;
        listed.sort_by_key(|p| place(p).unwrap_or(usize::MAX));
        let mut groups: Vec<(Vec<ModuleId>, Vec<Sharded>)> = vec![(vec![ModuleId::ROOT], Vec::new())];
        let mut ends: Vec<(ModuleId, Vec<Sharded>)> = Vec::new();
        for parameter in listed {
            if keys.wrap == Wrap::Torchtitan && parameter.block.is_none() {
                match ends.iter_mut().find(|(module, _)| *module == parameter.module) {
                    Some((_, members)) => members.push(parameter),
                    None => ends.push((parameter.module, vec![parameter])),
                }
                continue;
            }
            let owner = parameter.block.filter(|_| keys.wrap != Wrap::Root).unwrap_or(ModuleId::ROOT);
            match groups.iter_mut().find(|(modules, _)| modules.contains(&owner)) {
                Some((_, members)) => members.push(parameter),
                None => groups.push((vec![owner], vec![parameter])),
            }
        }
        // torchtitan: the embedding by itself, the norm and the head together.
        let mut ends = ends.into_iter();
        groups.extend(ends.next().map(|(module, members)| (vec![module], members)));
        let (modules, members): (Vec<ModuleId>, Vec<Vec<Sharded>>) = ends.unzip();
        let last = modules.first().copied();
        if last.is_some() {
            groups.push((modules, members.into_iter().flatten().collect()));
        }
        let reshards = |modules: &[ModuleId]| match keys.reshard_after_forward {
            // torchtitan leaves the last ones whole, which backward needs first.
            Reshard::Unset => !modules.contains(&ModuleId::ROOT) && modules.first().copied() != last,
            Reshard::True => true,
            Reshard::False => false,
        };
        groups.retain(|(_, members)| !members.is_empty());
        let hosted = Hosted::new(keys.pin_memory);
        Self::load(cx, &mut groups, keys.load, keys.cpu_offload.then_some(&hosted));
        if keys.cpu_offload && keys.load == LoadFrom::Meta {
            Self::empty_on_host(cx, &groups, order, &hosted);
        }
        let mut shards: Vec<(usize, Tensor)> = Vec::new();
        for member in groups.iter().flat_map(|(_, members)| members) {
            shards.push((place(member).unwrap_or(usize::MAX), member.shard.clone()));
        }
        shards.sort_by_key(|(place, _)| *place);
        let shards = shards.into_iter().map(|(_, shard)| shard).collect();
        let grouped = groups.into_iter().map(|(modules, members)| {
            let reshards = reshards(&modules);
            (modules, Group::new(members, reshards))
        });
        let groups: Vec<(Vec<ModuleId>, Group)> = grouped.collect();
        let owned = |(index, (modules, _)): (usize, &(Vec<ModuleId>, Group))| -> Vec<(ModuleId, usize)> {
            modules.iter().map(|module| (*module, index)).collect()
        };
        let owners = groups.iter().enumerate().flat_map(owned).collect();
        let fsdp = Rc::new(Self {
            groups,
            owners,
            shared: Shared {
                ranks: sharing(parallel),
                copies: parallel.replicate,
                reshards_backward: keys.reshard_after_backward,
                offloaded: keys.cpu_offload,
                hosted,
                reduce_dtype,
                gathering: module("all_gather"),
                unsharded: module("unsharded"),
                reducing: module("reduce_scatter"),
                gathered: RefCell::default(),
                reduced: RefCell::default(),
            },
            param_dtype: dtype(keys.param_dtype),
            order: RefCell::default(),
            running: RefCell::default(),
            forward: Cell::new(false),
            reentrant: Cell::new(false),
            first_node: Cell::new(0),
            root: Cell::default(),
            root_reached: Cell::new(false),
            calm: Cell::new((0, 0)),
            reduces: Cell::new(true),
            shards,
        });
        cx.set_hooks(Rc::<Self>::clone(&fsdp));
        fsdp
    }

    fn group(&self, module: ModuleId) -> Option<(usize, &Group)> {
        let index = *self.owners.get(&module)?;
        self.groups.get(index).map(|(_, group)| (index, group))
    }

    /// Whether a module that is called is called as in the forward. Under no reentrant checkpoint `_pre_forward` has nothing to do in
    /// backward: the group has been gathered for it by then.
    fn calls(&self) -> bool {
        self.forward.get() || self.reentrant.get()
    }

    /// No node is calm before it was looked at.
    fn stir(&self) {
        self.calm.set((0, u32::MAX));
    }

    /// The lowest node from `sequence` down until which nothing changes: where a group that waits ends, or one that has begun
    /// begins.
    fn next_change(&self, sequence: u32) -> u32 {
        let change = |(_, group): &(Vec<ModuleId>, Group)| {
            let span = group.span.get();
            match group.progress.get() {
                Progress::Waiting => Some(span.end).filter(|end| *end <= sequence),
                Progress::Begun if span.inputs_take_gradients => Some(span.begin).filter(|begin| *begin <= sequence),
                Progress::Begun | Progress::Done => None,
            }
        };
        let root = Some(self.root.get().end).filter(|end| *end <= sequence && !self.root_reached.get());
        self.groups.iter().filter_map(change).chain(root).max().unwrap_or(0)
    }

    /// Whether a module is the first, or the last, of those that its group was made of.
    fn is_end(&self, module: ModuleId, last: bool) -> bool {
        let end = |(modules, _): &(Vec<ModuleId>, Group)| {
            if last { modules.last().copied() } else { modules.first().copied() }
        };
        self.groups.iter().filter_map(end).any(|end| end == module)
    }

    /// `fully_shard` of a model that is on the card, or comes to it group by group: a group's parameters are whole while its
    /// shards are made. Offloaded, a shard is cut on the card and goes on to the machine's memory.
    fn load(
        cx: &Rc<Context>,
        groups: &mut [(Vec<ModuleId>, Vec<Sharded>)],
        from: LoadFrom,
        offloaded: Option<&Hosted>,
    ) {
        if from == LoadFrom::Meta {
            return;
        }
        let members = || groups.iter().flat_map(|(_, members)| members);
        let mut loaded = match from {
            LoadFrom::Cpu => Loaded::of(cx, members().map(|p| (&p.whole, p.shard.dtype()))),
            LoadFrom::Meta | LoadFrom::Cuda => Loaded::default(),
        };
        let mut whole = |members: &[Sharded]| -> Vec<Tensor> {
            let move_it = |p: &Sharded| {
                let moved = ops::loaded(cx, p.whole.dims(), p.shard.dtype());
                loaded.moved(&p.whole);
                moved
            };
            members.iter().map(move_it).collect()
        };
        // Blocks are cut first, the root last.
        let mut order: Vec<usize> = (0..groups.len()).collect();
        order.sort_by_key(|index| groups.get(*index).is_some_and(|(modules, _)| modules.contains(&ModuleId::ROOT)));
        let mut on_card: Vec<Vec<Tensor>> = if from == LoadFrom::Cuda {
            groups.iter().map(|(_, members)| whole(members)).collect()
        } else {
            groups.iter().map(|_| Vec::new()).collect()
        };
        for index in order {
            let (Some((_, members)), Some(full)) = (groups.get_mut(index), on_card.get_mut(index)) else { continue };
            if full.is_empty() {
                *full = whole(members);
            }
            for member in members {
                let shard = ops::loaded(cx, member.shard.dims(), member.shard.dtype());
                match offloaded {
                    Some(hosted) => {
                        hosted.come(cx, &member.shard);
                        hosted.pin(cx, &member.shard);
                    }
                    None => member.shard = if member.shard.requires_grad() { shard.into_leaf(false) } else { shard },
                }
            }
            full.clear();
        }
    }

    /// `to_empty(device="cpu")` of a model that was cut on the meta device, from its modules' first to its last: when a module that
    /// was wrapped has all of its parameters, they are page-locked, one after the other (`FSDPModule._apply`).
    fn empty_on_host(cx: &Rc<Context>, groups: &[(Vec<ModuleId>, Vec<Sharded>)], order: &[Tensor], hosted: &Hosted) {
        let places = places(order);
        let of_group = |(group, (_, members)): (usize, &(Vec<ModuleId>, Vec<Sharded>))| -> Vec<(usize, usize, Tensor)> {
            let place = |p: &Sharded| places.get(&p.whole.storage_id()).copied().unwrap_or(usize::MAX);
            members.iter().map(|p| (place(p), group, p.shard.clone())).collect()
        };
        let mut listed: Vec<(usize, usize, Tensor)> = groups.iter().enumerate().flat_map(of_group).collect();
        listed.sort_by_key(|(place, ..)| *place);
        let root = |group: usize| groups.get(group).is_some_and(|(modules, _)| modules.contains(&ModuleId::ROOT));
        let pin = |group: usize| {
            for (_, _, shard) in listed.iter().filter(|(_, of, _)| *of == group) {
                hosted.pin(cx, shard);
            }
        };
        for (index, (_, group, shard)) in listed.iter().enumerate() {
            hosted.come(cx, shard);
            let next = listed.get(index + 1).map(|(_, group, _)| *group);
            if next != Some(*group) && !root(*group) {
                pin(*group);
            }
        }
        (0..groups.len()).filter(|group| root(*group)).for_each(pin);
    }

    /// `pre_backward`: what is not there is gathered, and the group that ran before this one is gathered ahead.
    fn pre_backward(&self, cx: &Rc<Context>, group: &Group, index: usize) {
        group.progress.set(Progress::Begun);
        group.unshard(cx, &self.shared);
        group.wait(cx, &self.shared, false);
        let order = self.order.borrow();
        // `_post_forward_indices.pop()`.
        let place = order.iter().rposition(|of| *of == index);
        let before = place.and_then(|place| place.checked_sub(1)).and_then(|place| order.get(place));
        if let Some((_, ahead)) = before.and_then(|before| self.groups.get(*before)) {
            ahead.unshard(cx, &self.shared);
        }
    }
}

impl Wrapper for Fsdp2 {
    fn parameters(&self) -> &[Tensor] {
        &self.shards
    }

    /// What stays whole, or whole gradients, are the groups' own; what goes to the machine's memory is in no copy.
    fn repeats(&self, every: bool) -> bool {
        every && self.shared.reshards_backward && !self.shared.offloaded
    }

    fn hosted(&self) -> Vec<Tensor> {
        self.shared.hosted.parameters()
    }

    /// What is not reduced stays whole (`set_requires_gradient_sync`). The root's inputs are cast to what parameters are
    /// gathered in (`cast_forward_inputs`).
    fn before_forward(&self, cx: &Rc<Context>, batch: Option<&Batch>, reduces: bool) -> Option<Batch> {
        self.reduces.set(reduces);
        self.forward.set(true);
        self.reentrant.set(cx.is_reentrant());
        self.root_reached.set(false);
        self.stir();
        self.order.borrow_mut().clear();
        let batch = batch?;
        let inputs = batch.inputs();
        let dtype = self.param_dtype.filter(|dtype| inputs.dtype().is_float() && inputs.dtype() != *dtype)?;
        Some(batch.with_inputs(ops::to(inputs, dtype)))
    }
}

impl Hooks for Fsdp2 {
    fn enters(&self, cx: &Rc<Context>, module: ModuleId) -> bool {
        let known = module == ModuleId::ROOT || self.group(module).is_some();
        if !known || !self.calls() {
            return false;
        }
        self.stir();
        if let Some((_, depth)) = self.running.borrow_mut().iter_mut().find(|(running, _)| *running == module) {
            *depth += 1;
            return true;
        }
        self.running.borrow_mut().push((module, 1));
        let begin = cx.next_node();
        if module == ModuleId::ROOT {
            self.first_node.set(begin);
            self.root.set(Span { begin, ..Span::default() });
        }
        if let Some((_, group)) = self.group(module).filter(|_| self.is_end(module, false)) {
            group.unshard(cx, &self.shared);
            group.wait(cx, &self.shared, true);
            // Nothing is computed again for inputs that take none.
            let take = || !self.forward.get() || cx.has_graph_since(self.first_node.get());
            let inputs_take_gradients = module != ModuleId::ROOT && take();
            group.span.set(Span { begin, end: begin, inputs_take_gradients });
        }
        true
    }

    /// `cast_forward_inputs` of `MixedPrecisionPolicy`: `FSDPState._pre_forward` of `_fsdp_state.py` casts before it gathers, and
    /// nothing where backward computes a module once more. The root's own are cast with the batch.
    fn casts(&self, module: ModuleId) -> Option<DType> {
        let known = module != ModuleId::ROOT && self.calls() && self.group(module).is_some();
        self.param_dtype.filter(|_| known)
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
        // `iter_forward_root`: in backward whatever a checkpoint calls.
        let outermost = running.is_empty();
        drop(running);
        self.stir();
        let end = cx.next_node();
        if let Some((index, group)) = self.group(module).filter(|_| self.is_end(module, true)) {
            group.span.set(Span { end, ..group.span.get() });
            if self.forward.get() || !cx.machine().rules.has(&rules::RECOMPUTED_STAYS_WHOLE) {
                if group.reshards {
                    group.reshard();
                }
                self.order.borrow_mut().push(index);
            }
        }
        if module == ModuleId::ROOT {
            self.root.set(Span { end, ..self.root.get() });
            self.forward.set(false);
        }
        if outermost {
            drop(self.shared.gathered.take());
        }
        true
    }

    /// `RegisterPostBackwardFunction` of what a checkpoint called once more.
    fn went_backward(&self, cx: &Rc<Context>, sequence: u32) -> bool {
        self.stir();
        for (_, group) in &self.groups {
            // Not of a module that was called before it, of whose layers one has a checkpoint of its own.
            if group.progress.get() == Progress::Begun && group.span.get().begin > sequence {
                group.post_backward(cx, &self.shared, self.reduces.get());
            }
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
        for (_, group) in &self.groups {
            let span = group.span.get();
            let left = sequence < span.begin && span.inputs_take_gradients;
            if left && group.progress.get() == Progress::Begun {
                group.post_backward(cx, &self.shared, self.reduces.get());
            }
        }
        let root = self.root.get();
        if sequence < root.end
            && !self.root_reached.replace(true)
            && let Some((index, group)) = self.group(ModuleId::ROOT)
        {
            self.pre_backward(cx, group, index);
        }
        for (index, (modules, group)) in self.groups.iter().enumerate() {
            let span = group.span.get();
            let within = (span.begin..span.end).contains(&sequence) && !modules.contains(&ModuleId::ROOT);
            if within && group.progress.get() == Progress::Waiting {
                self.pre_backward(cx, group, index);
            }
        }
        self.calm.set((sequence, self.next_change(sequence)));
        true
    }

    /// `_root_post_backward_final_callback`: groups whose inputs take no gradient, the root first.
    fn finishes(&self, cx: &Rc<Context>) {
        for (_, group) in &self.groups {
            if group.progress.get() != Progress::Done {
                group.post_backward(cx, &self.shared, self.reduces.get());
            }
            group.finalize();
        }
        drop(self.shared.reduced.take());
    }
}
