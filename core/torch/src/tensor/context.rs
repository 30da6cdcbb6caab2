//! What is going on while a step runs: the ledger, the grad mode, autocast, the module we are in.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use plimsoll_ground::{Error, Reason};
use plimsoll_ledger::{Birth, DType, Event, Kind, Law, Ledger, ModuleId, Owner, PhaseName, Recorder, Stream};

use super::autocast::Autocast;
use super::blas::Blas;
use super::checkpoint::Frame;
use super::geometry::Geometry;
use super::heard::Call;
use super::hooks::Hooks;
use super::loss_rules::LossRules;
use super::machine::Machine;
use super::past::Past;
use super::storage::Tensor;
use super::unit_backward::Repetitions;
use super::unit_lines::Stretch;
use crate::{GradFn, Op};

/// One run's state. Everything that allocates reaches it through a tensor or holds the `Rc`.
pub struct Context {
    pub(crate) recorder: RefCell<Recorder>,
    /// How many tensors refer to each storage.
    pub(super) references: RefCell<Vec<Cell<u32>>>,
    pub(super) module: Cell<ModuleId>,
    /// Kind given to fresh storages.
    kind: Cell<Kind>,
    /// Autograd's function being run, none outside backward.
    pub(super) grad_fn: Cell<GradFn>,
    /// The parameter that fresh storages belong to.
    owner: Cell<Option<Owner>>,
    pub(super) grad_enabled: Cell<bool>,
    pub(super) next_seq: Cell<u32>,
    /// What [`Context::next_seq`] was when the last graph had been gone through.
    pub(super) graph: Cell<u32>,
    /// Whether a forward has made an activation a leaf (`enable_input_require_grads`).
    pub(super) leaf_made: Cell<bool>,
    /// What a recording says of whether the module that it calls is given something that takes a gradient.
    pub(super) takes_told: Cell<Option<bool>>,
    /// Whether linears are DeepSpeed's of stage 3.
    linear_function: Cell<bool>,
    pub(super) autocast: RefCell<Option<Autocast>>,
    /// Innermost checkpoint the forward or a recomputation is in.
    pub(super) frames: RefCell<Vec<Frame>>,
    /// Whether checkpoints keep the results of some operators.
    pub(super) selective: Cell<bool>,
    /// Why PyTorch fails on this run, if it does.
    refused: RefCell<Option<Error>>,
    /// Whether there is an average of the model, which was copied when it was loaded.
    averaged: Cell<bool>,
    /// Storages that a deep copy of the model makes twice.
    pub(super) twice: RefCell<BTreeSet<u32>>,
    /// Of a stack's layers every so many-th is checkpointed.
    pub(super) checkpoint_every: Cell<u64>,
    /// Whether the layer that runs is one of the others.
    pub(super) spared: Cell<bool>,
    /// Whether what runs is inside a library's operator.
    pub(super) inside_operator: Cell<bool>,
    /// Set when a recomputation has produced all it must: ops run on without allocating, as if the exception that
    /// `torch.utils.checkpoint` raises there had unwound them.
    pub(super) muted: Cell<bool>,
    closed: Cell<bool>,
    /// Set when more was written than a run may have: nothing that follows is written, and the run is worth nothing.
    exhausted: Cell<bool>,
    /// So many entries are written when it is looked at anew whether that is too much.
    weighed_next: Cell<usize>,
    /// Whether a forward has changed the model itself, as the next one will not.
    changed: Cell<bool>,
    pub(super) blas: Blas,
    /// `model.eval()`: nothing is dropped out, batch statistics are not computed.
    pub(super) inference: Cell<bool>,
    /// The keys and values a generation has seen so far.
    pub(super) past: RefCell<Option<Past>>,
    loss: Cell<LossRules>,
    /// The convolutions whose algorithm was searched for (`torch.backends.cudnn.benchmark`), where it is.
    searched: RefCell<Option<BTreeSet<Vec<u64>>>>,
    /// What a loop still calls its outputs when it computes the next ones, but not when it computes their loss.
    last_outputs: RefCell<Vec<Tensor>>,
    /// Parameters of the model's ends: tables of embeddings and the output head.
    outer: RefCell<Vec<u32>>,
    machine: Cell<Machine>,
    pub(super) repetitions: Repetitions,
    /// Who sees what runs.
    pub(super) hooks: RefCell<Option<Rc<dyn Hooks>>>,
    /// How many cards one process has, each with threads of its own; 0 where it has one (`torch.nn.DataParallel`).
    pub(super) threads: Cell<u64>,
    /// The machine's own memory, where anything is in it.
    pub(super) host: RefCell<Option<Rc<Context>>>,
}

impl Context {
    /// A fresh run.
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            recorder: RefCell::new(Recorder::new(Op::names(), GradFn::names())),
            references: RefCell::new(Vec::with_capacity(Recorder::STORAGES)),
            module: Cell::default(),
            kind: Cell::new(Kind::Parameter),
            grad_fn: Cell::new(GradFn::None),
            owner: Cell::default(),
            grad_enabled: Cell::new(true),
            next_seq: Cell::new(0),
            graph: Cell::new(0),
            leaf_made: Cell::new(false),
            takes_told: Cell::default(),
            linear_function: Cell::new(false),
            autocast: RefCell::default(),
            frames: RefCell::default(),
            selective: Cell::new(false),
            refused: RefCell::default(),
            averaged: Cell::default(),
            twice: RefCell::default(),
            checkpoint_every: Cell::new(1),
            spared: Cell::new(false),
            inside_operator: Cell::new(false),
            muted: Cell::new(false),
            closed: Cell::new(false),
            exhausted: Cell::new(false),
            weighed_next: Cell::new(0),
            changed: Cell::new(false),
            blas: Blas::default(),
            inference: Cell::new(false),
            past: RefCell::default(),
            loss: Cell::default(),
            searched: RefCell::default(),
            last_outputs: RefCell::default(),
            outer: RefCell::default(),
            machine: Cell::default(),
            repetitions: Repetitions::default(),
            hooks: RefCell::default(),
            threads: Cell::new(0),
            host: RefCell::default(),
        })
    }

    /// About what the run holds besides its ledger, in bytes: the count of each storage's references, and the graph of the forward
    /// that runs.
    fn beside(&self) -> u64 {
        /// A node with its formula and two tensors that it keeps.
        const NODE: u64 = 400;
        const REFERENCES: u64 = 4;
        let nodes = u64::from(self.next_seq.get().saturating_sub(self.graph.get()));
        nodes * NODE + self.references.borrow().len() as u64 * REFERENCES
    }

    /// The graph made so far is gone but for what outputs hold of it.
    pub(super) fn graph_is_gone(&self) {
        self.graph.set(self.next_seq.get());
    }

    /// Bytes that the run takes of our own memory, about.
    pub fn weight(&self) -> u64 {
        self.recorder.borrow().bytes().saturating_add(self.beside())
    }

    /// Registers the child `name` of a module; of a `ModuleList`, its entry `item`.
    pub fn module(&self, parent: ModuleId, name: Cow<'static, str>, item: Option<u32>) -> ModuleId {
        self.recorder.borrow_mut().module(parent, name, item)
    }

    /// How many modules there are.
    pub fn modules(&self) -> u32 {
        self.recorder.borrow().ledger().modules.len() as u32
    }

    /// PyTorch fails here. The run goes on; whoever executes it asks in the end. The first reason counts.
    pub(crate) fn refuse(&self, why: impl FnOnce() -> Error) {
        if !self.is_refused() {
            *self.refused.borrow_mut() = Some(why());
        }
    }

    /// Whether PyTorch fails on what ran by now.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.borrow().is_some()
    }

    /// Why PyTorch fails on it, if it does.
    pub fn refusal(&self) -> Option<Error> {
        self.refused.take()
    }

    /// The dotted path of a module.
    pub fn path(&self, module: ModuleId) -> String {
        self.recorder.borrow().ledger().modules.path(module)
    }

    /// Closes the books: what is let go of from now on is no event of the run. What the run itself held is let go of, so that
    /// nothing holds the run: tensors know it.
    pub fn end(&self) {
        self.closed.set(true);
        // A backward that was given up has left its own.
        self.let_go_of_repetitions();
        self.blas.let_go();
        drop((self.past.take(), self.hooks.take(), self.last_outputs.take()));
        if let Some(host) = &*self.host.borrow() {
            host.end();
        }
    }

    /// `torch.backends.cudnn.benchmark = True`.
    pub fn search_convolutions(&self) {
        self.searched.replace(Some(BTreeSet::new()));
    }

    /// A convolution that is none of those before has its algorithm searched for, and what is cached goes back to the card
    /// (`get_plans_from_find` in `aten/src/ATen/native/cudnn/Conv_v8.cpp`: "Replicate v7 behavior: clear cached blocks as benchmark
    /// incurs significant memory consumption that is not needed after this step").
    pub(crate) fn convolves(&self, which: impl Iterator<Item = u64>) {
        let new = self.searched.borrow_mut().as_mut().is_some_and(|known| known.insert(which.collect()));
        if new {
            self.empty_cache();
        }
    }

    /// Holds these until a loss is computed of those that take their name.
    pub fn hold_until_loss(&self, outputs: Vec<Tensor>) {
        drop(self.last_outputs.replace(outputs));
    }

    /// A loss is computed of outputs that have their name.
    pub(crate) fn outputs_are_named(&self) {
        drop(self.last_outputs.take());
    }

    /// Whether more was written than a run may have ([`Recorder::over`]): it is to be given up as soon as may be. A recomputation
    /// that has begun is not: who asked for it waits for what it saves. It writes no more than its forward did. So is a run whose
    /// copies turned out to be none: it is done again without them, and what it still wrote would be paid twice.
    pub fn exhausted(&self) -> bool {
        let known = self.exhausted.get() || self.repeats_failed();
        if !known && !self.is_to_be_weighed() {
            return false;
        }
        if self.frames.borrow().iter().any(Frame::recomputes) {
            return false;
        }
        if !known {
            self.weighed_next.set(self.written() + Self::WEIGHED_AFTER);
            self.exhausted.set(self.recorder.borrow().over(self.beside()));
        }
        known || self.exhausted.get()
    }

    /// As [`Context::exhausted`], of all that is written by now.
    pub fn exhausted_by_now(&self) -> bool {
        self.weighed_next.set(0);
        self.exhausted()
    }

    /// So many entries later what is written is worth weighing again: whoever asks does so at every storage and node.
    const WEIGHED_AFTER: usize = 64;

    /// Whether enough was written since the last time.
    #[inline]
    fn is_to_be_weighed(&self) -> bool {
        self.written() >= self.weighed_next.get()
    }

    /// Entries of the ledger and nodes of the graph.
    #[inline]
    fn written(&self) -> usize {
        self.recorder.borrow().entries() + self.next_seq.get() as usize
    }

    /// Says that this forward gives a parameter another dtype: the next one will not do the same, and an average that was copied
    /// before cannot take it in.
    pub(crate) fn recast_for_good(&self) {
        self.changed.set(true);
        if !self.averaged.get() {
            return;
        }
        self.refuse(|| {
            let module = self.path(self.current_module());
            let problem = format!(
                "bitsandbytes gives the bias of {module} the dtype of its input in the first forward, and PyTorch averages no two \
                 dtypes: \"Tensors of the same index must be on the same device and the same dtype\""
            );
            Error::new("training.ema", problem, "leave it out, or leave quantization out").because(Reason::RecastParameter)
        });
    }

    /// Says that there is an average of the model from now on.
    pub(crate) fn is_averaged(&self) {
        self.averaged.set(true);
    }

    /// Says that a deep copy of the model makes this one twice.
    pub(crate) fn copies_twice(&self, tensor: &Tensor) {
        self.twice.borrow_mut().insert(tensor.storage_id());
    }

    /// Whether a forward has said so since the last time this was asked.
    pub fn take_changed(&self) -> bool {
        self.changed.take()
    }

    /// Says which card and software this runs on.
    pub fn set_machine(&self, machine: Machine) {
        self.machine.set(machine);
    }

    /// The card and software this runs on.
    pub fn machine(&self) -> Machine {
        self.machine.get()
    }

    /// Whether ops run on without allocating, because a recomputation has produced all it must.
    pub fn is_muted(&self) -> bool {
        self.muted.get()
    }

    /// `torch.cuda.empty_cache()`.
    pub fn empty_cache(&self) {
        self.recorder.borrow_mut().empty_cache();
    }

    /// Looks at what is written so far.
    pub fn so_far<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(self.recorder.borrow().ledger())
    }

    /// A load happened otherwise: see [`Recorder::reload`].
    pub fn reload(&self, events: Vec<Event>, emptied: Option<usize>) {
        self.recorder.borrow_mut().reload(events, emptied);
    }

    /// Takes the ledger out of a finished run.
    pub fn take(&self) -> Ledger {
        let host = self.host.take().map(|host| Box::new(host.take()));
        Ledger { host, ..self.recorder.take().finish() }
    }

    /// Runs `f` inside a module, as `nn.Module.__call__` does.
    pub fn within<T>(self: &Rc<Self>, module: ModuleId, f: impl FnOnce() -> T) -> T {
        let outer = self.module.replace(module);
        // A recomputation that has all it needs ends with an exception: no hook sees what is left of it.
        if !self.muted.get() {
            self.tell(Call::Enters(module));
        }
        self.takes_told.set(None);
        let out = f();
        if !self.muted.get() {
            self.tell(Call::Leaves(module));
        }
        self.module.set(outer);
        out
    }

    /// As [`Context::within`], of a module that is given `input` alone: whether that takes a gradient is known, where else hooks see only
    /// whether anything made so far does.
    pub fn within_given<T>(self: &Rc<Self>, module: ModuleId, input: &Tensor, f: impl FnOnce() -> T) -> T {
        self.takes_told.set(Some(input.requires_grad()));
        self.within(module, f)
    }

    /// Runs `f` with what it makes put down to `module`, which is not called: hooks hear nothing of it.
    pub fn put_down_to<T>(&self, module: ModuleId, f: impl FnOnce() -> T) -> T {
        let outer = self.module.replace(module);
        let out = f();
        self.module.set(outer);
        out
    }

    /// The module we are in.
    pub fn current_module(&self) -> ModuleId {
        self.module.get()
    }

    pub(super) fn set_module(&self, module: ModuleId) {
        self.module.set(module);
    }

    /// Runs `f` with fresh storages counted as `kind`.
    pub fn counting_as<T>(&self, kind: Kind, f: impl FnOnce() -> T) -> T {
        let outer = self.kind.replace(kind);
        let out = f();
        self.kind.set(outer);
        out
    }

    /// Runs `f` under `torch.no_grad()`.
    pub fn no_grad<T>(&self, f: impl FnOnce() -> T) -> T {
        let outer = self.grad_enabled.replace(false);
        let out = f();
        self.grad_enabled.set(outer);
        out
    }

    /// Runs `f` with fresh storages belonging to `parameter`.
    pub fn owned_by<T>(&self, parameter: &Tensor, f: impl FnOnce() -> T) -> T {
        let outer = self.owner.replace(Owner::new(parameter.storage_id()));
        let out = f();
        self.owner.set(outer);
        out
    }

    /// Marks the beginning of a phase and the kind of what it allocates.
    pub fn begin(&self, name: PhaseName, step: Option<u32>, micro_batch: Option<u64>) {
        self.recorder.borrow_mut().phase(name, step, micro_batch);
        self.kind.set(match name {
            PhaseName::Load => Kind::Parameter,
            PhaseName::Input => Kind::Input,
            PhaseName::Forward | PhaseName::Prefill | PhaseName::Decode => Kind::Forward,
            PhaseName::Backward => Kind::Backward,
            PhaseName::Clip | PhaseName::Optimizer | PhaseName::ZeroGrad => Kind::Optimizer,
        });
        if let Some(host) = &*self.host.borrow() {
            host.begin(name, step, micro_batch);
        }
    }

    /// Allocates a tensor that no kernel has written yet: `torch.empty_strided` in the name of `op`.
    pub(crate) fn empty(self: &Rc<Self>, op: Op, geometry: Geometry, dtype: DType) -> Tensor {
        let bytes = if self.muted.get() { 0 } else { geometry.numel().saturating_mul(dtype.size()) };
        self.allocate(op, geometry, dtype, bytes)
    }

    /// Allocates `bytes` that are not a tensor of their own (a library's workspace).
    pub(crate) fn allocate(self: &Rc<Self>, op: Op, geometry: Geometry, dtype: DType, bytes: u64) -> Tensor {
        if self.exhausted() {
            // Any storage will do: nobody reads this ledger.
            self.retain(0);
            return Tensor::fresh(self, 0, geometry, dtype);
        }
        // The batch of all cards lies on the first one, which takes its share of it.
        let shares = if self.kind.get() == Kind::Input { self.threads.get().max(1) } else { 1 };
        let bytes = bytes.saturating_mul(shares);
        let id = self.recorder.borrow_mut().birth(Birth {
            bytes,
            kind: self.kind.get(),
            op: op.id(),
            grad_fn: self.grad_fn.get().id(),
            module: self.module.get(),
            dtype,
            sizes: geometry.dims(),
            owner: self.owner.get(),
        });
        self.references.borrow_mut().push(Cell::new(1));
        Tensor::fresh(self, id, geometry, dtype)
    }

    /// Runs `f` with fresh storages on this stream (`torch.cuda.stream`).
    pub fn on_stream<T>(&self, stream: Stream, f: impl FnOnce() -> T) -> T {
        let outer = self.recorder.borrow_mut().switch(stream);
        let out = f();
        self.recorder.borrow_mut().switch(outer);
        out
    }

    /// The parameter that fresh storages belong to.
    pub(super) fn owner(&self) -> Option<Owner> {
        self.owner.get()
    }

    /// The kind fresh storages have.
    pub(super) fn kind(&self) -> Kind {
        self.kind.get()
    }

    /// The newest storage has one that refers to it.
    pub(super) fn refer(&self, id: u32) {
        let mut references = self.references.borrow_mut();
        debug_assert_eq!(references.len(), id as usize);
        references.push(Cell::new(1));
    }

    /// The size of a storage follows from another one's.
    pub fn law(&self, law: Law) {
        self.recorder.borrow_mut().law(law);
    }

    /// A contiguous tensor of `sizes`.
    pub(crate) fn empty_sizes(self: &Rc<Self>, op: Op, sizes: &[u64], dtype: DType) -> Tensor {
        self.empty(op, Geometry::contiguous(sizes), dtype)
    }

    /// Puts DeepSpeed's `LinearFunctionForZeroStage3` in the place of every linear (`memory_efficient_linear`).
    pub fn set_linear_function(&self) {
        self.linear_function.set(true);
    }

    /// Whether it is there.
    pub(crate) fn has_linear_function(&self) -> bool {
        self.linear_function.get()
    }

    /// One process has so many cards, and runs the model in a thread of each: no weight is a leaf there, so autocast keeps no copies.
    pub fn set_threads(&self, cards: u64) {
        self.threads.set(cards);
    }

    /// Whether that is so.
    pub(super) fn has_threads(&self) -> bool {
        self.threads.get() > 0
    }

    /// Lets units of a model that repeat be copied instead of executed, or not.
    pub fn set_repeats(&self, allowed: bool) {
        self.repetitions.allowed.set(allowed);
    }

    /// Whether a copy turned out not to be what executing would have done: then the run is worth nothing, and is to be done
    /// again without copies.
    pub fn repeats_failed(&self) -> bool {
        self.repetitions.failed.get()
    }

    pub(super) fn fail_repeats(&self) {
        self.repetitions.failed.set(true);
    }

    /// Whether units may be copied here: not within others, within checkpoints, or where a generation remembers each.
    pub(super) fn may_repeat(&self) -> bool {
        let repetitions = &self.repetitions;
        let plain = self.frames.borrow().is_empty() && !self.muted.get() && !self.remembers();
        repetitions.allowed.get() && !repetitions.running.get() && !repetitions.failed.get() && plain
    }

    pub(super) fn set_repeating(&self, running: bool) {
        self.repetitions.running.set(running);
    }

    /// Runs `f`; what it wrote.
    pub(super) fn stretch<T>(&self, f: impl FnOnce() -> T) -> (Stretch, T) {
        let from = self.reached();
        let out = f();
        (self.between(from, self.reached()), out)
    }

    pub(super) fn set_references(&self, id: u32, count: u32) {
        self.references.borrow()[id as usize].set(count);
    }

    pub(super) fn references(&self, id: u32) -> u32 {
        self.references.borrow()[id as usize].get()
    }

    pub(super) fn retain(&self, id: u32) {
        {
            let references = self.references.borrow();
            let count = &references[id as usize];
            count.set(count.get() + 1);
        }
        if self.is_given(id) {
            self.hear_retained(id);
        }
    }

    /// Lets go of one reference; with the last one the storage dies. One that has none was copied wrongly.
    pub(super) fn release(&self, id: u32) {
        if self.closed.get() {
            return;
        }
        let from = self.is_given(id).then(|| self.position());
        {
            let references = self.references.borrow();
            let count = &references[id as usize];
            let Some(fewer) = count.get().checked_sub(1) else { return self.fail_repeats() };
            count.set(fewer);
            if fewer == 0 {
                self.recorder.borrow_mut().death(id);
            }
        }
        if let Some(from) = from {
            self.hear_released(id, from);
        }
    }

    /// Whether `tensor` is a model's parameter, trained or frozen.
    pub fn is_parameter(&self, tensor: &Tensor) -> bool {
        self.recorder.borrow().ledger().storages[tensor.storage_id() as usize].kind == Kind::Parameter
    }

    /// The dotted path of the module that `tensor`'s storage was made in.
    pub fn made_in(&self, tensor: &Tensor) -> String {
        let recorder = self.recorder.borrow();
        let ledger = recorder.ledger();
        ledger.storages.get(tensor.storage_id() as usize).map_or_else(String::new, |storage| ledger.module(storage))
    }

    /// How the run computes its loss.
    pub fn loss_rules(&self) -> LossRules {
        self.loss.get()
    }

    /// Says how the run computes its loss; the model's own way where nothing is said.
    pub fn set_loss_rules(&self, rules: LossRules) {
        self.loss.set(rules);
    }

    /// Marks a parameter as one of the model's ends: a table of embeddings, or the output head.
    pub fn mark_outer(&self, tensor: &Tensor) {
        self.outer.borrow_mut().push(tensor.storage_id());
    }

    /// Whether `tensor` was marked by [`Context::mark_outer`].
    pub fn is_outer(&self, tensor: &Tensor) -> bool {
        self.outer.borrow().contains(&tensor.storage_id())
    }

    /// Raises the kind of a storage: a forward temporary that the graph keeps becomes a saved activation, a backward
    /// temporary that is accumulated becomes a gradient, and so does what a forward computed ahead and kept.
    pub(super) fn raise(&self, id: u32, kind: Kind) {
        let mut recorder = self.recorder.borrow_mut();
        let known = recorder.kind_mut(id);
        match (*known, kind) {
            (Kind::Forward, Kind::Saved) | (Kind::Backward | Kind::Forward | Kind::Saved, Kind::Gradient) => {
                *known = kind
            }
            _ => {}
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("module", &self.module).finish_non_exhaustive()
    }
}
