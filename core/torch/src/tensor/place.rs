//! Where what is made is put down: its module, its kind, whose it is, its phase, its stream.

use std::borrow::Cow;
use std::rc::Rc;

use plimsoll_ledger::{Kind, ModuleId, Owner, PhaseName, Stream};

use super::context::Context;
use super::heard::Call;
use super::storage::Tensor;

impl Context {
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

    /// Runs `f` inside a module, as `nn.Module.__call__` does.
    pub fn within<T>(self: &Rc<Self>, module: ModuleId, f: impl FnOnce() -> T) -> T {
        let outer = self.module.replace(module);
        // A recomputation that has all it needs ends with an exception: no hook sees what is left of it.
        if !self.muted.get() {
            self.tell(Call::Enters(module));
        }
        self.takes_told.set(None);
        let out = self.sparing(module, f);
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
