//! Stage 3 (`deepspeed/runtime/zero/stage3.py`, 0.19.8): parameters, gradients and the optimizer's states cut over the cards.
//!
//! A module's parameters are gathered before it runs and released behind it. From the second forward on DeepSpeed knows in
//! which order modules run: it gathers ahead, and keeps what is used again soon.

mod calls;
mod coordinator;
mod leaves;
mod reduction;
mod step;
mod store;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_ground::Result;
use plimsoll_ledger::Stream;
use plimsoll_scenario::{Offload, Parallel, Zero};
use plimsoll_torch::Batch;
use plimsoll_torch::nn::Sharded;
use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::optim::{self, Share};
use plimsoll_torch::tensor::{Context, DType, Hooks, HostMemory, Kind, ModuleId, Tensor};

use super::small::Norms;
use crate::hosted::Loaded as Arriving;
use crate::wrapper::{Engine, Wrapper};
use calls::{Calls, Passed};
use coordinator::Coordinator;
use leaves::Leaves;
use reduction::Reduction;
use step::Step;
pub use step::SubGroup;
use store::{Members, Parameter, Store};

/// `__allgather_stream` and `reduce_and_partition_stream`, where communication overlaps.
const ALL_GATHER: Stream = Stream::new(1);
const REDUCE: Stream = Stream::new(2);

/// A model under ZeRO 3, on the first rank.
#[derive(Debug)]
pub struct Late {
    store: Store,
    coordinator: Coordinator,
    reduction: Reduction,
    groups: Vec<SubGroup>,
    /// The rank's master weights, a sub-group each, which the optimizer works on; none where they are in the machine's memory.
    masters: Vec<Tensor>,
    /// Those that are there.
    hosted: Vec<Tensor>,
    /// What lives as long as the optimizer: the rank's parts of all parameters, and the flag of overflows.
    #[allow(dead_code, reason = "held alive, as the optimizer holds it")]
    held: Vec<Tensor>,
    /// `grad_partitions_flat_buffer`; not where it is in the machine's memory.
    gradients: Option<Tensor>,
    dtype: DType,
    module: ModuleId,
    /// Modules that are given indices: no gradient flows back into them.
    indexed: Vec<ModuleId>,
    /// The forward's calls, and those that are made again in backward.
    calls: Calls,
    again: Calls,
    forward: Cell<bool>,
    first_node: Cell<u32>,
    /// Whether this is the step's last micro-batch.
    last: Cell<bool>,
    norms: Norms,
    step: Step,
    persistent: RefCell<Vec<usize>>,
    leaves: Leaves,
}

impl Late {
    /// `deepspeed.initialize(model)`, of a model in the machine's memory. `shared` are modules that use a parameter of another one,
    /// `leaves` those that are gathered with all that lies in them.
    pub fn wrap(
        cx: &Rc<Context>,
        sharded: &[Sharded],
        order: Vec<Tensor>,
        (shared, leaves): (&[(ModuleId, Tensor)], &[ModuleId]),
        parallel: &Parallel,
    ) -> Rc<Self> {
        let module = cx.module(ModuleId::ROOT, "zero".into(), None);
        let keys = &parallel.zero;
        let ranks = parallel.gpus.max(1);
        let stream = |stream| if keys.overlap_comm { stream } else { Stream::DEFAULT };
        // Of what is not trained some may be packed in integers.
        let trained = order.iter().find(|parameter| parameter.requires_grad());
        let dtype = trained.map_or(DType::Float32, Tensor::dtype);
        let offloads = |offload| offload != Offload::None;
        let (offloaded, away) = (offloads(keys.offload_optimizer), offloads(keys.offload_param));
        let store = Store::new(order, (ranks, keys.param_persistence_threshold), (stream(ALL_GATHER), module), away);
        let leaves = Leaves::new(leaves);
        let mut owned: Vec<Members> = Vec::new();
        let own = sharded.iter().map(|parameter| (parameter.module, &parameter.whole));
        for (module, whole) in own.chain(shared.iter().map(|(module, whole)| (*module, whole))) {
            let module = leaves.of(cx, module).unwrap_or(module);
            if owned.len() <= module.index() {
                owned.resize(module.index() + 1, Members::new());
            }
            if let (Some(list), Some(index)) = (owned.get_mut(module.index()), store.place(whole))
                && !list.contains(&index)
            {
                list.push(index);
            }
        }
        leaves.hold(&owned, &store);
        let mut reduction = Reduction::new(keys, ranks, dtype, (stream(REDUCE), module), offloaded);
        let loaded = cx.put_down_to(module, || Loaded::load(cx, &store, keys, &mut reduction, dtype));
        for (number, parameter) in (0u32..).zip(&store.all) {
            parameter.whole.number(number);
        }
        let persistent = (0..store.all.len()).filter(|index| store.get(*index).is_some_and(|p| p.persists)).collect();
        let zero = Rc::new(Self {
            coordinator: Coordinator::new(owned, keys),
            reduction,
            groups: loaded.groups,
            masters: loaded.masters,
            hosted: loaded.hosted,
            held: loaded.held,
            gradients: loaded.gradients,
            dtype,
            module,
            indexed: sharded.iter().filter(|parameter| parameter.indexed).map(|parameter| parameter.module).collect(),
            calls: Calls::default(),
            again: Calls::default(),
            forward: Cell::new(false),
            first_node: Cell::new(0),
            last: Cell::new(true),
            norms: Norms::default(),
            step: Step::default(),
            persistent: RefCell::new(persistent),
            leaves,
            store,
        });
        cx.set_linear_function();
        cx.set_hooks(Rc::<Self>::clone(&zero));
        zero
    }

    /// The calls that a module's is one of. What a reentrant checkpoint computes again goes backward itself.
    fn calls_now(&self, cx: &Context) -> &Calls {
        if self.forward.get() || cx.is_reentrant() { &self.calls } else { &self.again }
    }

    /// Whether backward passes anything on its way to the node of this number.
    fn pass(&self, cx: &Rc<Context>, to: u32) -> bool {
        let mut any = false;
        while let Some(passed) = self.calls.pass(to) {
            self.passed(cx, passed);
            any = true;
        }
        any
    }

    fn passed(&self, cx: &Rc<Context>, passed: Passed) {
        match passed {
            Passed::Output(module) => self.coordinator.fetch(cx, &self.store, module, false),
            Passed::Input(module) => {
                // `reduce_leaf_module_grads`, its full backward hook.
                for parameter in self.leaves.settle(module, &self.store) {
                    self.reduction.add(cx, &self.store, &self.norms, parameter, self.last.get());
                }
                self.coordinator.release(&self.store, module, false);
            }
        }
    }
}

/// What the optimizer makes when it is built.
struct Loaded {
    groups: Vec<SubGroup>,
    masters: Vec<Tensor>,
    /// Those that lie in the machine's memory.
    hosted: Vec<Tensor>,
    held: Vec<Tensor>,
    gradients: Option<Tensor>,
}

impl Loaded {
    /// The whole model comes to the card, is cut parameter by parameter, and the parts are laid together by way of the machine's
    /// memory (`defragment`).
    fn load(cx: &Rc<Context>, store: &Store, keys: &Zero, reduction: &mut Reduction, dtype: DType) -> Self {
        let on_card = |sizes: &[u64], dtype| ops::loaded(cx, sizes, dtype);
        let gradient = |f: &dyn Fn() -> Tensor| cx.counting_as(Kind::Gradient, f);
        let (offloaded, away) = (keys.offload_optimizer != Offload::None, keys.offload_param != Offload::None);
        let mut loaded = Arriving::of(cx, store.all.iter().map(|p| (&p.whole, p.whole.dtype())));
        let to_card = |p: &Parameter| {
            let moved = p.moulds.loaded.make(cx, || on_card(p.whole.dims(), p.whole.dtype()));
            loaded.moved(&p.whole);
            moved
        };
        let wholes: Vec<Tensor> = store.all.iter().map(to_card).collect();
        let (mut parts, mut held) = (Vec::with_capacity(store.all.len()), Vec::new());
        let mut away_parts = Vec::new();
        let how = HostMemory::pinned(keys.offload_pin_memory);
        for (parameter, whole) in store.all.iter().zip(wholes) {
            // Of what is not trained the parts stay where they were cut.
            let kept = if parameter.whole.requires_grad() { &mut parts } else { &mut held };
            let part = || on_card(&[parameter.part], parameter.whole.dtype());
            kept.extend((!away).then(|| parameter.moulds.part.make(cx, part)));
            if away && !parameter.persists && !reduction.swap.parts(keys, parameter.part, parameter.whole.dtype()) {
                let part = cx.pinned_copy(&[parameter.part], parameter.whole.dtype(), how);
                away_parts.push((parameter.whole.requires_grad(), part));
            }
            if parameter.whole.dtype() == DType::Int8 {
                // bitsandbytes' eight-bit linear has it under another name as well (`Int8Params.CB`): it stays whole.
                held.push(whole);
            } else {
                drop(whole);
            }
        }
        held.extend((!offloaded).then(|| ops::fill(cx, Fill::Zeros, &[1], DType::Bool)));
        drop(parts);
        if !away {
            // `defragment`
            cx.empty_cache();
        }
        let trained = || store.all.iter().filter(|parameter| parameter.whole.requires_grad());
        let numels: Vec<u64> = trained().map(|parameter| parameter.part).collect();
        let groups = SubGroup::of(&numels, keys.sub_group_size);
        let total = numels.iter().fold(0u64, |sum, numel| sum.saturating_add(*numel));
        held.extend((!away).then(|| on_card(&[total], dtype)));
        // `_create_param_groups_fp16_flat_cpu_memory`: what is trained moves into one flat buffer, and the blocks that it leaves stay
        // page-locked.
        let swapped: Vec<(u64, bool)> = store.all.iter().map(|p| (p.part, p.persists)).collect();
        let flat = reduction.swap.parameters(cx, keys, dtype, &swapped, &groups);
        held.extend(away.then(|| cx.pinned_copy(&[flat], dtype, how)));
        reduction.swap.optimizer(cx, keys, &groups);
        let (moved, stay): (Vec<_>, Vec<_>) = away_parts.into_iter().partition(|(trained, _)| *trained);
        drop(moved);
        held.extend(stay.into_iter().map(|(_, part)| part));
        let mut masters = Vec::new();
        let (mut hosted, mut converted_there) = (Vec::new(), None);
        for group in groups.iter().filter(|group| !reduction.swap.takes(group.numel())) {
            let numel = [group.numel()];
            if offloaded {
                // `.to("cpu", float32)`, and a clone of that: page-locked is neither.
                let there = || cx.on_host(&numel, DType::Float32, HostMemory::Pageable);
                drop(converted_there.replace(there()));
                hosted.push(there().into_leaf(false));
                continue;
            }
            // `.to(device, dtype)`, and a clone of that.
            let converted = (away || dtype != DType::Float32).then(|| on_card(&numel, DType::Float32));
            let master = on_card(&numel, DType::Float32);
            drop(converted);
            masters.push(master.into_leaf(false));
        }
        drop(converted_there);
        let largest = groups.iter().map(SubGroup::numel).max().unwrap_or(0);
        if offloaded {
            let passing = gradient(&|| cx.on_host(&[largest], DType::Float32, HostMemory::Pageable));
            for (group, master) in groups.iter().filter(|group| !reduction.swap.takes(group.numel())).zip(&hosted) {
                let fresh = gradient(&|| cx.pinned_copy(&[group.numel()], DType::Float32, how));
                optim::set_gradient(master, Some(fresh));
            }
            drop(passing);
            // `grad_partitions_flat_buffer`
            held.push(gradient(&|| cx.pinned_copy(&[total], dtype, how)));
        } else {
            drop(gradient(&|| ops::fill(cx, Fill::Zeros, &[largest], DType::Float32)));
        }
        reduction.set_up(cx);
        let gradients = (!offloaded).then(|| gradient(&|| ops::fill(cx, Fill::Zeros, &[total], dtype)));
        // `create_reduce_and_remove_grad_hooks`: each is gathered once, to find where its gradient arrives.
        for parameter in trained() {
            store.gather_once(cx, parameter);
        }
        Self { groups, masters, hosted, held, gradients }
    }
}

impl Hooks for Late {
    fn enters(&self, cx: &Rc<Context>, module: ModuleId) -> bool {
        if self.leaves.has_inside(cx, module) {
            return true;
        }
        let (calls, node) = (self.calls_now(cx), cx.next_node());
        let takes = cx.has_graph_since(self.first_node.get()) && !self.indexed.contains(&module);
        if calls.enters(module, node, takes) {
            if module == ModuleId::ROOT && self.forward.get() {
                self.coordinator.begin(cx, &self.store);
            }
            self.coordinator.fetch(cx, &self.store, module, true);
        }
        true
    }

    fn leaves(&self, cx: &Rc<Context>, module: ModuleId) -> bool {
        if self.leaves.has_inside(cx, module) {
            return true;
        }
        let calls = self.calls_now(cx);
        if calls.leaves(module, cx.next_node()) {
            self.coordinator.release(&self.store, module, true);
            if module == ModuleId::ROOT {
                self.forward.set(false);
            }
        }
        true
    }

    fn reaches(&self, cx: &Rc<Context>, sequence: u32) -> bool {
        // Not a leaf's own node.
        sequence != u32::MAX && self.pass(cx, sequence)
    }

    fn accumulated(&self, cx: &Rc<Context>, parameter: u32) {
        if !self.leaves.have(parameter as usize) {
            self.reduction.add(cx, &self.store, &self.norms, parameter as usize, self.last.get());
        }
    }

    /// What is gathered is let go of by giving the parameter other data: whoever detached it before keeps it.
    fn holds(&self, tensor: &Tensor) -> Option<Tensor> {
        self.store.bytes_of(tensor)
    }

    fn replaced(&self, tensor: &Tensor) {
        self.store.replaced(tensor);
    }

    fn reads(&self, cx: &Rc<Context>, tensor: &Tensor) {
        let calls = self.calls_now(cx);
        if let (Some(module), Some(index)) = (calls.innermost(), self.store.place(tensor)) {
            self.coordinator.read(cx, &self.store, module, index);
        }
    }

    fn requires_output(&self, cx: &Rc<Context>) {
        let calls = self.calls_now(cx);
        calls.requires_output(cx.next_node());
    }

    fn finishes(&self, cx: &Rc<Context>) {
        self.pass(cx, 0);
        while let Some(passed) = self.calls.pass_last() {
            self.passed(cx, passed);
        }
    }
}

impl Wrapper for Late {
    fn parameters(&self) -> &[Tensor] {
        &self.masters
    }

    fn before_forward(&self, cx: &Rc<Context>, _: Option<&Batch>, reduces: bool) -> Option<Batch> {
        self.last.set(reduces);
        self.forward.set(true);
        self.first_node.set(cx.next_node());
        self.calls.clear();
        self.again.clear();
        None
    }

    fn hosted(&self) -> Vec<Tensor> {
        self.hosted.clone()
    }

    fn engine(&self) -> Option<&dyn Engine> {
        Some(self)
    }

    fn checked(&self) -> Result<()> {
        self.reduction.swap.checked()
    }
}

impl Engine for Late {
    fn after_backward(&self, cx: &Rc<Context>) {
        self.reduction.reduce(cx, &self.store, &self.norms, self.last.get());
        self.coordinator.end_backward(&self.store);
    }

    fn step(&self, cx: &Rc<Context>, optimizers: &mut [Share]) {
        self.coordinator.reset(cx, &self.store);
        cx.counting_as(Kind::Gradient, || {
            cx.put_down_to(self.module, || match &self.gradients {
                Some(gradients) => {
                    if self.dtype == DType::Float16 {
                        step::look_for_overflow(gradients);
                    }
                    self.step.run(cx, &self.groups, &self.masters, self.dtype, gradients, optimizers);
                    self.store.gather_now(cx, &self.persistent.borrow());
                }
                None => {
                    step::norms_elsewhere(cx, self.groups.len());
                    self.norms.forget();
                    self.reduction.swap.step(cx);
                    self.store.come_back(cx);
                    self.store.gather_now(cx, &self.persistent.borrow());
                }
            });
        });
    }

    /// New weights go into the flat buffer of those that are gathered, a sub-group at a time: a copy between the card and the
    /// machine's memory that casts does so in the machine's memory.
    fn stepped(&self, cx: &Rc<Context>) {
        let dtype = match (!self.masters.is_empty(), self.store.is_away()) {
            (false, false) => self.dtype,
            (true, true) => DType::Float32,
            _ => return,
        };
        for group in self.groups.iter().filter(|_| self.dtype != DType::Float32) {
            drop(cx.on_host(&[group.numel()], dtype, HostMemory::Pageable));
        }
    }
}
