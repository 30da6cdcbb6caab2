//! The workspaces that cuBLAS and cuBLASLt take from PyTorch's allocator.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_catalog::device::Workspace;
use plimsoll_ledger::{DType, Kind, ModuleId, PhaseName, Recorder};

use super::context::Context;
use super::geometry::Geometry;
use super::storage::Tensor;
use crate::{GradFn, Op};

/// cuBLAS keeps a workspace for every handle and stream, taken from PyTorch's allocator at the first product and never
/// given back, or takes one for each product (`ATen/cuda/CublasHandlePool.cpp`). The forward's thread and autograd's have a
/// handle each.
///
/// cuBLASLt, which adds a bias in the product's own kernel, has a second one for each handle, or takes one for each product.
#[derive(Default)]
pub(super) struct Blas {
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

impl Blas {
    /// All handles let go of what they have.
    pub fn let_go(&self) {
        for handle in [&self.forward, &self.backward, &self.step] {
            drop((handle.blas.take(), handle.lt.take()));
        }
    }
}

impl Context {
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
}
