//! What is going on while a step runs: the ledger, the grad mode, autocast, the module we are in.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use plimsoll_catalog::device::Workspace;
use plimsoll_ledger::{Birth, DType, Kind, Law, Ledger, ModuleId, Owner, PhaseName, Recorder, Storage, Stream};

use super::autocast::Autocast;
use super::checkpoint::Frame;
use super::geometry::Geometry;
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
    module: Cell<ModuleId>,
    /// Kind given to fresh storages.
    kind: Cell<Kind>,
    /// Autograd's function being run, none outside backward.
    pub(super) grad_fn: Cell<GradFn>,
    /// The parameter that fresh storages belong to.
    owner: Cell<Option<Owner>>,
    pub(super) grad_enabled: Cell<bool>,
    pub(super) next_seq: Cell<u32>,
    /// What [`Context::next_seq`] was when the last graph had been gone through.
    graph: Cell<u32>,
    /// Whether a forward has made an activation a leaf (`enable_input_require_grads`).
    pub(super) leaf_made: Cell<bool>,
    /// What a recording says of whether the module that it calls is given something that takes a gradient.
    pub(super) takes_told: Cell<Option<bool>>,
    /// Whether linears are DeepSpeed's of stage 3.
    linear_function: Cell<bool>,
    pub(super) autocast: RefCell<Option<Autocast>>,
    /// Innermost checkpoint the forward or a recomputation is in.
    pub(super) frames: RefCell<Vec<Frame>>,
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
    blas: Blas,
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
    threads: Cell<u64>,
    /// The machine's own memory, where anything is in it.
    pub(super) host: RefCell<Option<Rc<Context>>>,
}

/// cuBLAS keeps a workspace for every handle and stream, taken from PyTorch's allocator at the first product and never
/// given back, or takes one for each product (`ATen/cuda/CublasHandlePool.cpp`). The forward's thread and autograd's have a
/// handle each.
///
/// cuBLASLt, which adds a bias in the product's own kernel, has a second one for each handle, or takes one for each product.
#[derive(Default)]
struct Blas {
    workspace: Cell<Workspace>,
    lt_workspace: Cell<Workspace>,
    forward: Handle,
    backward: Handle,
    /// Of the thread that steps, where forwards run in threads of their own.
    step: Handle,
}

/// The workspaces of one thread's handle, where there are any yet.
#[derive(Default)]
struct Handle {
    blas: RefCell<Option<Tensor>>,
    lt: RefCell<Option<Tensor>>,
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
        for handle in [&self.blas.forward, &self.blas.backward, &self.blas.step] {
            drop((handle.blas.take(), handle.lt.take()));
        }
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
        if self.frames.borrow().iter().any(Frame::recomputes) {
            return false;
        }
        if !self.exhausted.get() && self.is_to_be_weighed() && self.recorder.borrow().over(self.beside()) {
            self.exhausted.set(true);
        }
        self.exhausted.get() || self.repeats_failed()
    }

    /// As [`Context::exhausted`], of all that is written by now.
    pub fn exhausted_by_now(&self) -> bool {
        self.weighed_next.set(0);
        self.exhausted()
    }

    /// Whether enough was written since the last time to be worth weighing: whoever asks does so at every storage and node.
    fn is_to_be_weighed(&self) -> bool {
        const ENTRIES: usize = 64;
        let written = self.recorder.borrow().entries() + self.next_seq.get() as usize;
        if written < self.weighed_next.get() {
            return false;
        }
        self.weighed_next.set(written + ENTRIES);
        true
    }

    /// Says that this forward changes the model itself: the next one will not do the same.
    pub fn changed_for_good(&self) {
        self.changed.set(true);
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

    /// Gives every cuBLAS handle and its cuBLASLt their workspaces (of 0 bytes: none is counted).
    pub fn set_blas_workspace(&self, blas: Workspace, lt: Workspace) {
        self.blas.workspace.set(blas);
        self.blas.lt_workspace.set(lt);
    }

    /// A matrix product runs: the first one of its thread makes the handle's workspace, or, in versions that keep none, every one
    /// makes one and lets go of it.
    pub fn blas(self: &Rc<Self>) {
        let Workspace { bytes, kept } = self.blas.workspace.get();
        if kept {
            self.keep_workspace(Op::CublasWorkspace, bytes.get(), |handle| &handle.blas);
        } else {
            self.passing_workspace(Op::CublasWorkspace, bytes.get());
        }
    }

    /// A matrix product runs that adds a bias as it goes: the first one of its thread makes both libraries' workspaces, or,
    /// in versions that keep none, every one makes cuBLASLt's and lets go of it.
    pub fn blas_with_bias(self: &Rc<Self>) {
        let Workspace { bytes, kept } = self.blas.lt_workspace.get();
        if kept {
            self.blas();
            self.keep_workspace(Op::CublasltWorkspace, bytes.get(), |handle| &handle.lt);
            return;
        }
        let _scratch = self.passing_workspace(Op::CublasltWorkspace, bytes.get());
        // A handle that keeps none makes none for cuBLASLt.
        if self.blas.workspace.get().kept {
            self.blas();
        }
    }

    fn passing_workspace(self: &Rc<Self>, op: Op, bytes: u64) -> Option<Tensor> {
        let sizes = Geometry::contiguous(&[bytes]);
        let make = || self.counting_as(Kind::Scratch, || self.allocate(op, sizes, DType::Bool, bytes));
        (bytes > 0 && !self.muted.get()).then(make)
    }

    fn keep_workspace(self: &Rc<Self>, op: Op, bytes: u64, of: fn(&Handle) -> &RefCell<Option<Tensor>>) {
        let forward = self.grad_fn.get() == GradFn::None;
        // The thread of a card's forward ends with it, and autograd's takes the handle that it gave back
        // (`ATen/cuda/detail/DeviceThreadHandles.h`); the next forward's makes another.
        let backward = &self.blas.backward;
        if !forward && self.threads.get() > 0 && backward.blas.borrow().is_none() {
            let left = (self.blas.forward.blas.take(), self.blas.forward.lt.take());
            drop((backward.blas.replace(left.0), backward.lt.replace(left.1)));
        }
        let phase = |of: &Recorder| of.ledger().phases.last().map(|mark| mark.name);
        let steps = self.threads.get() > 0 && phase(&self.recorder.borrow()) == Some(PhaseName::Optimizer);
        let place = of(match forward {
            true if steps => &self.blas.step,
            true => &self.blas.forward,
            false => &self.blas.backward,
        });
        if bytes == 0 || place.borrow().is_some() || self.muted.get() {
            return;
        }
        let (grad_fn, module) = (self.grad_fn.replace(GradFn::None), self.module.replace(ModuleId::ROOT));
        let workspace =
            self.counting_as(Kind::Workspace, || self.allocate(op, Geometry::contiguous(&[bytes]), DType::Bool, bytes));
        self.grad_fn.set(grad_fn);
        self.module.set(module);
        *place.borrow_mut() = Some(workspace);
    }

    /// `torch.cuda.empty_cache()`.
    pub fn empty_cache(&self) {
        self.recorder.borrow_mut().empty_cache();
    }

    /// Takes the ledger out of a finished run.
    pub fn take(&self) -> Ledger {
        let host = self.host.take().map(|host| Box::new(host.take()));
        Ledger { host, ..self.recorder.take().finish() }
    }

    /// Runs `f` inside a module, as `nn.Module.__call__` does.
    pub fn within<T>(self: &Rc<Self>, module: ModuleId, f: impl FnOnce() -> T) -> T {
        let outer = self.module.replace(module);
        let hooks = self.hooks();
        // A recomputation that has all it needs ends with an exception: no hook sees what is left of it.
        if let Some(hooks) = hooks.as_ref().filter(|_| !self.muted.get()) {
            hooks.enters(self, module);
        }
        self.takes_told.set(None);
        let out = f();
        if let Some(hooks) = hooks.as_ref().filter(|_| !self.muted.get()) {
            hooks.leaves(self, module);
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
        let (from, first) = (self.position(), self.next_storage());
        let out = f();
        (Stretch { positions: from..self.position(), born: first..self.next_storage() }, out)
    }

    pub(super) fn set_references(&self, id: u32, count: u32) {
        self.references.borrow()[id as usize].set(count);
    }

    pub(super) fn references(&self, id: u32) -> u32 {
        self.references.borrow()[id as usize].get()
    }

    pub(super) fn retain(&self, id: u32) {
        let references = self.references.borrow();
        let count = &references[id as usize];
        count.set(count.get() + 1);
    }

    /// Lets go of one reference; with the last one the storage dies. One that has none was copied wrongly.
    pub(super) fn release(&self, id: u32) {
        if self.closed.get() {
            return;
        }
        let references = self.references.borrow();
        let count = &references[id as usize];
        let Some(fewer) = count.get().checked_sub(1) else { return self.fail_repeats() };
        count.set(fewer);
        if fewer == 0 {
            self.recorder.borrow_mut().death(id);
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

    /// The storage of each buffer, how many numbers it has, and of which type, in the order in which they were made.
    pub fn buffers(&self) -> Vec<(u32, u64, DType)> {
        let (recorder, references) = (self.recorder.borrow(), self.references.borrow());
        let ledger = recorder.ledger();
        let loaded = (0..).zip(ledger.storages.iter().zip(references.iter()));
        let alive = loaded.filter(|(_, (s, references))| references.get() > 0 && s.kind == Kind::Buffer);
        alive.map(|(id, (s, _))| (id, ledger.sizes(s).iter().product(), s.dtype)).collect()
    }

    /// A copy of every parameter and buffer there is, named by `op`, in modules of the same paths under `root`.
    pub fn copy_loaded(self: &Rc<Self>, op: Op, root: &'static str) -> Vec<Tensor> {
        let loaded: Vec<Storage> = {
            let (recorder, references) = (self.recorder.borrow(), self.references.borrow());
            let loaded = recorder.ledger().storages.iter().zip(references.iter());
            let alive = loaded
                .filter(|(s, references)| references.get() > 0 && matches!(s.kind, Kind::Parameter | Kind::Buffer));
            alive.map(|(s, _)| *s).collect()
        };
        let modules = self.copy_modules(root);
        let copy = |storage: &Storage| {
            let geometry = Geometry::contiguous(self.recorder.borrow().ledger().sizes(storage));
            let module = modules.get(storage.module.index()).copied().unwrap_or_default();
            let copy = || self.allocate(op, geometry, storage.dtype, storage.bytes);
            self.within(module, || self.counting_as(storage.kind, copy))
        };
        loaded.iter().map(copy).collect()
    }

    /// A copy of the tree of modules below a new one, `root`: the copies by the index of their originals.
    fn copy_modules(&self, root: &'static str) -> Vec<ModuleId> {
        let mut recorder = self.recorder.borrow_mut();
        let originals: Vec<_> = recorder.ledger().modules.iter().cloned().collect();
        let mut copies: Vec<ModuleId> = Vec::with_capacity(originals.len());
        for (index, module) in originals.into_iter().enumerate() {
            let copy = match copies.get(module.parent.index()) {
                Some(parent) if index > 0 => recorder.module(*parent, module.name, module.item),
                _ => recorder.module(ModuleId::ROOT, root.into(), None),
            };
            copies.push(copy);
        }
        copies
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
