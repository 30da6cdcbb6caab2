//! What is going on while a step runs: the ledger, the grad mode, autocast, the module we are in.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_ledger::{DType, Event, Kind, Ledger, MAX_RANK, ModuleId, PhaseMark, PhaseName, StorageInfo};

use super::autocast::Autocast;
use super::checkpoint::Frame;
use super::geometry::Geometry;
use super::loss_rules::LossRules;
use super::machine::Machine;
use super::past::Past;
use super::storage::Tensor;

/// One run's state. Everything that allocates reaches it through a tensor or holds the `Rc`.
pub struct Context {
    pub(crate) ledger: RefCell<Ledger>,
    /// How many tensors refer to each storage.
    pub(super) references: RefCell<Vec<Cell<u32>>>,
    module: Cell<ModuleId>,
    /// Kind given to fresh storages.
    kind: Cell<Kind>,
    /// Autograd node being run, empty outside backward.
    pub(super) node: Cell<&'static str>,
    pub(super) grad_enabled: Cell<bool>,
    pub(super) next_seq: Cell<u32>,
    pub(super) autocast: RefCell<Option<Autocast>>,
    /// Innermost checkpoint the forward or a recomputation is in.
    pub(super) frames: RefCell<Vec<Frame>>,
    /// Set when a recomputation has produced all it must: ops run on without allocating, as if the exception that
    /// `torch.utils.checkpoint` raises there had unwound them.
    pub(super) muted: Cell<bool>,
    closed: Cell<bool>,
    /// Whether a forward has changed the model itself, as the next one will not.
    changed: Cell<bool>,
    blas: Blas,
    /// `model.eval()`: nothing is dropped out, batch statistics are not computed.
    pub(super) inference: Cell<bool>,
    /// The keys and values a generation has seen so far.
    pub(super) past: RefCell<Option<Past>>,
    loss: Cell<LossRules>,
    /// Parameters of the model's ends: tables of embeddings and the output head.
    outer: RefCell<Vec<u32>>,
    machine: Cell<Machine>,
}

/// cuBLAS keeps a workspace for every handle and stream, taken from PyTorch's allocator at the first product and never
/// given back (`ATen/cuda/CublasHandlePool.cpp`). The forward's thread and autograd's have a handle each.
#[derive(Default)]
struct Blas {
    workspace: Cell<u64>,
    forward: RefCell<Option<Tensor>>,
    backward: RefCell<Option<Tensor>>,
}

impl Context {
    /// A fresh run.
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            ledger: RefCell::new(Ledger::roomy()),
            references: RefCell::default(),
            module: Cell::default(),
            kind: Cell::new(Kind::Parameter),
            node: Cell::new(""),
            grad_enabled: Cell::new(true),
            next_seq: Cell::new(0),
            autocast: RefCell::default(),
            frames: RefCell::default(),
            muted: Cell::new(false),
            closed: Cell::new(false),
            changed: Cell::new(false),
            blas: Blas::default(),
            inference: Cell::new(false),
            past: RefCell::default(),
            loss: Cell::default(),
            outer: RefCell::default(),
            machine: Cell::default(),
        })
    }

    /// Interns a module's dotted path.
    pub fn module(&self, path: String) -> ModuleId {
        let modules = &mut self.ledger.borrow_mut().modules;
        modules.push(path);
        ModuleId::new(modules.len() as u32 - 1)
    }

    /// Closes the books: what is let go of from now on is no event of the run.
    pub fn end(&self) {
        self.closed.set(true);
        drop((self.blas.forward.take(), self.blas.backward.take(), self.past.take()));
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

    /// Gives every cuBLAS handle a workspace of `bytes` (0: none is counted).
    pub fn set_blas_workspace(&self, bytes: u64) {
        self.blas.workspace.set(bytes);
    }

    /// A matrix product runs: the first one of its thread makes the handle's workspace.
    pub fn blas(self: &Rc<Self>) {
        let bytes = self.blas.workspace.get();
        let handle = if self.node.get().is_empty() { &self.blas.forward } else { &self.blas.backward };
        if bytes == 0 || handle.borrow().is_some() || self.muted.get() {
            return;
        }
        let (node, module) = (self.node.replace(""), self.module.replace(ModuleId::default()));
        let workspace = self.counting_as(Kind::Workspace, || {
            self.allocate("cublas_workspace", Geometry::contiguous(&[bytes]), DType::Bool, bytes)
        });
        self.node.set(node);
        self.module.set(module);
        *handle.borrow_mut() = Some(workspace);
    }

    /// Takes the ledger out of a finished run.
    pub fn take(&self) -> Ledger {
        self.ledger.take()
    }

    /// Runs `f` inside a module, as `nn.Module.__call__` does.
    pub fn within<T>(&self, module: ModuleId, f: impl FnOnce() -> T) -> T {
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

    /// Marks the beginning of a phase and the kind of what it allocates.
    pub fn begin(&self, name: PhaseName, step: Option<u32>, micro_batch: Option<u64>) {
        let mut ledger = self.ledger.borrow_mut();
        let at = ledger.events.len();
        ledger.phases.push(PhaseMark { at, name, step, micro_batch });
        self.kind.set(match name {
            PhaseName::Load => Kind::Parameter,
            PhaseName::Input => Kind::Input,
            PhaseName::Forward | PhaseName::Prefill | PhaseName::Decode => Kind::Forward,
            PhaseName::Backward => Kind::Backward,
            PhaseName::Clip | PhaseName::Optimizer | PhaseName::ZeroGrad => Kind::Optimizer,
        });
    }

    /// Allocates a tensor: `torch.empty_strided` in the name of `op`.
    pub fn empty(self: &Rc<Self>, op: &'static str, geometry: Geometry, dtype: DType) -> Tensor {
        let bytes = if self.muted.get() { 0 } else { geometry.numel().saturating_mul(dtype.size()) };
        self.allocate(op, geometry, dtype, bytes)
    }

    /// Allocates `bytes` that are not a tensor of their own (a library's workspace).
    pub fn allocate(self: &Rc<Self>, op: &'static str, geometry: Geometry, dtype: DType, bytes: u64) -> Tensor {
        let mut ledger = self.ledger.borrow_mut();
        let id = ledger.storages.len() as u32;
        let mut dims = [1; MAX_RANK];
        dims[..geometry.rank()].copy_from_slice(geometry.dims());
        ledger.storages.push(StorageInfo {
            bytes,
            kind: self.kind.get(),
            op,
            node: self.node.get(),
            module: self.module.get(),
            dtype,
            rank: geometry.rank() as u8,
            dims,
        });
        if bytes > 0 {
            ledger.events.push(Event::alloc(id));
        }
        drop(ledger);
        self.references.borrow_mut().push(Cell::new(1));
        Tensor::fresh(self, id, geometry, dtype)
    }

    /// A contiguous tensor of `sizes`.
    pub fn empty_sizes(self: &Rc<Self>, op: &'static str, sizes: &[u64], dtype: DType) -> Tensor {
        self.empty(op, Geometry::contiguous(sizes), dtype)
    }

    pub(super) fn references(&self, id: u32) -> u32 {
        self.references.borrow()[id as usize].get()
    }

    pub(super) fn retain(&self, id: u32) {
        let references = self.references.borrow();
        let count = &references[id as usize];
        count.set(count.get() + 1);
    }

    /// Lets go of one reference; with the last one the storage dies.
    pub(super) fn release(&self, id: u32) {
        let references = self.references.borrow();
        let count = &references[id as usize];
        count.set(count.get() - 1);
        if count.get() > 0 || self.closed.get() {
            return;
        }
        let mut ledger = self.ledger.borrow_mut();
        if ledger.storages[id as usize].bytes > 0 {
            ledger.events.push(Event::free(id));
        }
    }

    /// Whether `tensor` is a model's parameter, trained or frozen.
    pub fn is_parameter(&self, tensor: &Tensor) -> bool {
        self.ledger.borrow().storages[tensor.storage_id() as usize].kind == Kind::Parameter
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

    /// A copy of every parameter and buffer there is, named by `op`, in modules of the same paths under `root`.
    pub fn copy_loaded(self: &Rc<Self>, op: &'static str, root: &str) -> Vec<Tensor> {
        let loaded: Vec<StorageInfo> = {
            let (ledger, references) = (self.ledger.borrow(), self.references.borrow());
            let loaded = ledger.storages.iter().enumerate();
            let alive =
                loaded.filter(|(i, s)| references[*i].get() > 0 && matches!(s.kind, Kind::Parameter | Kind::Buffer));
            alive.map(|(_, s)| *s).collect()
        };
        let copy = |info: &StorageInfo| {
            let path = format!("{root}.{}", self.ledger.borrow().module(info));
            let geometry = Geometry::contiguous(&info.dims[..usize::from(info.rank)]);
            let module = self.module(path);
            let copy = || self.allocate(op, geometry, info.dtype, info.bytes);
            self.within(module, || self.counting_as(info.kind, copy))
        };
        loaded.iter().map(copy).collect()
    }

    /// Raises the kind of a storage: a forward temporary that the graph keeps becomes a saved activation, a backward
    /// temporary that is accumulated becomes a gradient, and so does what a forward computed ahead and kept.
    pub(super) fn raise(&self, id: u32, kind: Kind) {
        let mut ledger = self.ledger.borrow_mut();
        let info = &mut ledger.storages[id as usize];
        match (info.kind, kind) {
            (Kind::Forward, Kind::Saved) | (Kind::Backward | Kind::Forward | Kind::Saved, Kind::Gradient) => {
                info.kind = kind
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
