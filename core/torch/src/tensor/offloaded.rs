//! `torch.autograd.graph.save_on_cpu(pin_memory=True)`: what nodes save is copied to the machine's memory, page-locked, and comes back
//! when they ask for it (`torch/autograd/graph.py` of PyTorch 2.11, `pack_to_cpu` and `unpack_from_cpu`).
//!
//! Every tensor that is saved is, whatever it is: parameters too, and what two nodes save twice.

use std::rc::Rc;

use super::DType;
use super::context::Context;
use super::geometry::Geometry;
use super::host::HostMemory;
use super::storage::Tensor;
use crate::Op;
use crate::ops::{Transfer, transfer};

/// What becomes of a tensor that is saved for backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offloading {
    /// It stays where it is.
    #[default]
    None,
    /// `torch.autograd.graph.save_on_cpu(pin_memory=True)`.
    SaveOnCpu,
    /// TRL's `OffloadActivations`; see the file `stash.rs` beside this one.
    Stashed,
    /// The first input of each checkpoint alone; see the file `reentrant.rs` beside this one.
    Checkpoints,
}

/// A saved tensor that lies in the machine's memory.
#[derive(Debug)]
pub struct Offloaded {
    cx: Rc<Context>,
    /// As it comes back: contiguous, whatever it was.
    geometry: Geometry,
    dtype: DType,
    /// Held there as long as the node is.
    #[allow(dead_code, reason = "the machine's ledger counts it")]
    host: Tensor,
}

impl Offloaded {
    /// `packed = torch.empty(tensor.size(), pin_memory=True); packed.copy_(tensor)`.
    pub(super) fn pack(cx: &Rc<Context>, tensor: &Tensor) -> Self {
        let geometry = Geometry::contiguous(tensor.dims());
        let host = cx.on_host(tensor.dims(), tensor.dtype(), HostMemory::PageLocked);
        // Between card and host bytes go as they lie: what does not lie as it shall is laid so first (`copy_requires_temporaries` of
        // `aten/src/ATen/native/cuda/Copy.cu`).
        let laid = (!tensor.geometry().is_contiguous())
            .then(|| cx.launch(Op::Clone, &[tensor]).make(geometry.clone(), tensor.dtype()));
        transfer(cx, Transfer::ToHost, tensor.numel(), 1, tensor.dtype());
        drop(laid);
        Self { cx: Rc::clone(cx), geometry, dtype: tensor.dtype(), host }
    }

    /// `tensor.to(device, non_blocking=True)`.
    pub(super) fn unpack(&self) -> Tensor {
        let there = self.cx.launch(Op::ToCopy, &[]).make(self.geometry.clone(), self.dtype);
        transfer(&self.cx, Transfer::ToCard, there.numel(), 1, self.dtype);
        there
    }
}

impl Context {
    /// Runs `f`, what it saves going where this says.
    pub fn offloading<T>(&self, how: Offloading, f: impl FnOnce() -> T) -> T {
        let outer = self.offloading.replace(how);
        let out = f();
        self.offloading.set(outer);
        out
    }

    /// Where what is saved goes.
    pub(super) fn offloads(&self) -> Offloading {
        self.offloading.get()
    }
}
