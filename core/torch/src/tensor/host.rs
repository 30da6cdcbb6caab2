//! The machine's own memory, beside the card's: a context of its own, whose ledger says what lies there and for how long.
//!
//! What is offloaded, and a model on its way to the card, are tensors like any others there; an optimizer that runs on the processor
//! runs on them. Nothing of it is in the card's ledger.

use std::rc::Rc;

use plimsoll_ledger::{DType, Stream};

use super::context::Context;
use super::geometry::Geometry;
use super::storage::Tensor;
use crate::Op;

/// How memory of the machine is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMemory {
    /// As any program's: PyTorch's CPU allocator asks for it and gives it back.
    Pageable,
    /// Page-locked, out of PyTorch's `CachingHostAllocator`, which gives nothing back. On its ledger that is a stream of its own.
    PageLocked,
    /// Page-locked by others than PyTorch, of the size that was asked for.
    Locked,
    /// No memory: a file on NVMe.
    Nvme,
}

impl HostMemory {
    /// Where such storages come on the machine's ledger.
    pub const fn stream(self) -> Stream {
        match self {
            Self::Pageable => Stream::DEFAULT,
            Self::PageLocked => Stream::new(1),
            Self::Locked => Stream::new(2),
            Self::Nvme => Stream::new(3),
        }
    }

    /// Page-locked if asked for (`pin_memory`).
    pub const fn pinned(asked: bool) -> Self {
        if asked { Self::PageLocked } else { Self::Pageable }
    }
}

impl Context {
    /// The machine's memory, as this rank's process has it. Made when it is first asked for, in the phase that runs.
    pub fn host(self: &Rc<Self>) -> Rc<Self> {
        let known = self.host.borrow().clone();
        known.unwrap_or_else(|| {
            let host = Self::new();
            if let Some(mark) = self.recorder.borrow().ledger().phases.last() {
                host.begin(mark.name, mark.step, mark.micro_batch);
            }
            drop(self.host.replace(Some(Rc::clone(&host))));
            host
        })
    }

    /// Whether anything was in the machine's memory so far.
    pub fn has_host(&self) -> bool {
        self.host.borrow().is_some()
    }

    /// A tensor in the machine's memory.
    pub fn on_host(self: &Rc<Self>, sizes: &[u64], dtype: DType, how: HostMemory) -> Tensor {
        let host = self.host();
        let make = || host.empty(Op::EmptyMemoryFormat, Geometry::contiguous(sizes), dtype);
        host.counting_as(self.kind(), || host.on_stream(how.stream(), make))
    }

    /// A tensor as large as `like` in the machine's memory, pageable.
    pub fn on_host_like(self: &Rc<Self>, like: &Tensor, dtype: DType) -> Tensor {
        let host = self.host();
        let make = || host.empty(Op::EmptyMemoryFormat, like.geometry().made_contiguous(), dtype);
        host.counting_as(self.kind(), || host.on_stream(HostMemory::Pageable.stream(), make))
    }

    /// `torch.zeros(...)` of as much, and `pin_memory()` of that where it is asked for: for a moment both are there.
    pub fn pinned_copy(self: &Rc<Self>, sizes: &[u64], dtype: DType, how: HostMemory) -> Tensor {
        let first = self.on_host(sizes, dtype, HostMemory::Pageable);
        match how {
            HostMemory::Pageable => first,
            how => self.on_host(sizes, dtype, how),
        }
    }
}
