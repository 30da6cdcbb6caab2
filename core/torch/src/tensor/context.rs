//! What is going on while a step runs: the ledger, the grad mode, autocast, the module we are in.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use plimsoll_catalog::families::Liger;
use plimsoll_ground::{Error, Reason};
use plimsoll_ledger::{Birth, DType, Event, Kind, Law, Ledger, ModuleId, Owner, Recorder};

use super::autocast::Autocast;
use super::blas::Blas;
use super::checkpoint::Frame;
use super::geometry::Geometry;
use super::hooks::Hooks;
use super::loss_rules::LossRules;
use super::machine::Machine;
use super::offloaded::Offloading;
use super::past::Past;
use super::stash::Stash;
use super::storage::Tensor;
use super::unit_backward::Repetitions;
use crate::ops::Answers;
use crate::{GradFn, Op};

/// One run's state. Everything that allocates reaches it through a tensor or holds the `Rc`.
pub struct Context {
    pub(crate) recorder: RefCell<Recorder>,
    /// How many tensors refer to each storage.
    pub(super) references: RefCell<Vec<Cell<u32>>>,
    pub(super) module: Cell<ModuleId>,
    /// Kind given to fresh storages.
    pub(super) kind: Cell<Kind>,
    /// Autograd's function being run, none outside backward.
    pub(super) grad_fn: Cell<GradFn>,
    /// The parameter that fresh storages belong to.
    pub(super) owner: Cell<Option<Owner>>,
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
    /// Whether checkpoints are nodes of the graph, which run a backward of their own.
    pub(super) reentrant: Cell<bool>,
    /// Why PyTorch fails on this run, if it does.
    pub(super) refused: RefCell<Option<Error>>,
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
    pub(super) closed: Cell<bool>,
    /// Set when more was written than a run may have: nothing that follows is written, and the run is worth nothing.
    pub(super) exhausted: Cell<bool>,
    /// So many entries are written when it is looked at anew whether that is too much.
    pub(super) weighed_next: Cell<usize>,
    /// Whether a forward has changed the model itself, as the next one will not.
    changed: Cell<bool>,
    /// Whether a function of TorchScript has run.
    scripted: Cell<bool>,
    pub(super) blas: Blas,
    /// `model.eval()`: nothing is dropped out, batch statistics are not computed.
    pub(super) inference: Cell<bool>,
    /// The keys and values a generation has seen so far.
    pub(super) past: RefCell<Option<Past>>,
    loss: Cell<LossRules>,
    /// What Liger's kernels take the place of, where they do.
    liger: Cell<Option<&'static Liger>>,
    /// The convolutions whose algorithm was searched for (`torch.backends.cudnn.benchmark`), where it is.
    searched: RefCell<Option<BTreeSet<Vec<u64>>>>,
    /// cuDNN takes nothing for a convolution.
    hollow: Cell<bool>,
    /// What the card's cuDNN said it takes for a convolution, where it was asked.
    answers: RefCell<Option<Rc<Answers>>>,
    skips_tokens: Cell<bool>,
    /// What a loop still calls its outputs when it computes the next ones, but not when it computes their loss.
    last_outputs: RefCell<Vec<Tensor>>,
    /// Parameters of the model's ends: tables of embeddings and the output head.
    outer: RefCell<Vec<u32>>,
    /// Modules whose weight was stored the other way round than the quantized linear has it that takes their place.
    turned: RefCell<Vec<ModuleId>>,
    machine: Cell<Machine>,
    pub(super) repetitions: Repetitions,
    /// Who sees what runs.
    pub(super) hooks: RefCell<Option<Rc<dyn Hooks>>>,
    /// How many cards one process has, each with threads of its own; 0 where it has one (`torch.nn.DataParallel`).
    pub(super) threads: Cell<u64>,
    /// Whether and how what is saved for backward goes to the machine's memory.
    pub(super) offloading: Cell<Offloading>,
    pub(super) stash: Stash,
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
            reentrant: Cell::new(false),
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
            scripted: Cell::new(false),
            blas: Blas::default(),
            inference: Cell::new(false),
            past: RefCell::default(),
            loss: Cell::default(),
            liger: Cell::default(),
            searched: RefCell::default(),
            hollow: Cell::new(false),
            answers: RefCell::default(),
            skips_tokens: Cell::new(false),
            last_outputs: RefCell::default(),
            outer: RefCell::default(),
            turned: RefCell::default(),
            machine: Cell::default(),
            repetitions: Repetitions::default(),
            hooks: RefCell::default(),
            threads: Cell::new(0),
            offloading: Cell::default(),
            stash: Stash::default(),
            host: RefCell::default(),
        })
    }

    /// The graph made so far is gone but for what outputs hold of it.
    pub(super) fn graph_is_gone(&self) {
        self.graph.set(self.next_seq.get());
    }

    /// Closes the books: what is let go of from now on is no event of the run. What the run itself held is let go of, so that
    /// nothing holds the run: tensors know it.
    pub fn end(&self) {
        self.closed.set(true);
        // A backward that was given up has left its own.
        self.let_go_of_repetitions();
        self.stash.end();
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

    /// Runs on a hollow card, whose cuDNN takes nothing for a convolution.
    pub fn leave_out_cudnn(&self) {
        self.hollow.set(true);
    }

    /// Counts with what cuDNN answers, and asks it the rest.
    pub fn ask_cudnn(&self, answers: &Rc<Answers>) {
        self.answers.replace(Some(Rc::clone(answers)));
    }

    pub(crate) fn cudnn_answers(&self) -> Option<Rc<Answers>> {
        self.answers.borrow().clone()
    }

    /// Of a long generation fewer tokens are executed: one of many scenarios is asked for.
    pub fn skip_more_tokens(&self) {
        self.skips_tokens.set(true);
    }

    pub(crate) fn skips_more_tokens(&self) -> bool {
        self.skips_tokens.get()
    }

    /// Whether cuDNN takes for a convolution what its heuristics say: no algorithm is searched for, and the card is none that is
    /// hollow.
    pub(crate) fn convolves_by_heuristics(&self) -> bool {
        !self.hollow.get() && self.searched.borrow().is_none()
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

    /// What this forward brings to the card and a module keeps: the next one will not do the same.
    pub fn kept_from_now_on(&self, make: impl FnOnce() -> Tensor) -> Tensor {
        self.changed.set(true);
        self.counting_as(Kind::Buffer, make)
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
    pub(crate) fn set_averaged(&self) {
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

    /// Says that the function of a `torch.jit.script` runs, and tells whether it is compiled: TorchScript's executor runs it op by op the
    /// first time, to see what it is given, and fuses it from then on (`torch_jit_num_profiled_runs` is 1; `fuseTensorExprs`). Of fake
    /// tensors it sees no card, and fuses nothing. A model has one such function that makes anything.
    pub fn runs_script(&self) -> bool {
        if !self.machine().kernels.is_counted() {
            return false;
        }
        let compiled = self.scripted.replace(true);
        if !compiled {
            self.changed.set(true);
        }
        compiled
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
        Ledger { host, handed: self.stash.take_handed(), ..self.recorder.take().finish() }
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

    /// What Liger's kernels take the place of in the model, where they do.
    pub fn liger(&self) -> Option<&'static Liger> {
        self.liger.get()
    }

    /// Says what Liger's kernels take the place of, before the model is built.
    pub fn set_liger(&self, liger: Option<&'static Liger>) {
        self.liger.set(liger);
    }

    /// Marks a parameter as one of the model's ends: a table of embeddings, or the output head.
    pub fn mark_outer(&self, tensor: &Tensor) {
        self.outer.borrow_mut().push(tensor.storage_id());
    }

    /// Marks a module whose weight was stored the other way round than the quantized linear has it that takes its place.
    pub fn mark_turned(&self, module: ModuleId) {
        self.turned.borrow_mut().push(module);
    }

    /// Whether `module` was marked by [`Context::mark_turned`].
    pub fn is_turned(&self, module: ModuleId) -> bool {
        self.turned.borrow().contains(&module)
    }

    /// Whether `tensor` was marked by [`Context::mark_outer`].
    pub fn is_outer(&self, tensor: &Tensor) -> bool {
        self.outer.borrow().contains(&tensor.storage_id())
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("module", &self.module).finish_non_exhaustive()
    }
}
