//! Doing a stretch of the stream once more without executing it.
//!
//! Micro-batches repeat one another: what the second optimizer step allocates and frees is what the first one did. A
//! stretch is copied event by event with fresh storages, which costs a small part of running the ops again.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use plimsoll_ledger::DType;
use plimsoll_ledger::Event;
use plimsoll_ledger::Kind;

use super::context::Context;
use super::geometry::Geometry;
use super::storage::Tensor;

/// No storage of the copy stands for this one.
const NONE: u32 = u32::MAX;

/// A copy in the making: which fresh storage stands for which of the original.
#[derive(Debug)]
pub struct Repeat {
    first: u32,
    copies: Vec<u32>,
}

impl Repeat {
    /// A copy of something whose first storage has the id `first`.
    pub fn new(first: u32) -> Self {
        Self { first, copies: Vec::new() }
    }

    /// The copy of storage `id`.
    fn copy_of(&self, id: u32) -> Option<u32> {
        let index = id.checked_sub(self.first)? as usize;
        self.copies.get(index).copied().filter(|&c| c != NONE)
    }

    /// Appends the events of `range` once more. What outlives the run (library workspaces, the scaler's state) is made
    /// only once, and its second birth is left out.
    pub fn events(&mut self, cx: &Rc<Context>, range: Range<usize>) {
        let mut ledger = cx.ledger.borrow_mut();
        let ledger = &mut *ledger;
        let mut references = cx.references.borrow_mut();
        ledger.events.reserve(range.len());
        for at in range {
            let event = ledger.events[at];
            if event.is_free() {
                if let Some(copy) = self.copy_of(event.id()) {
                    references[copy as usize].set(0);
                    ledger.events.push(Event::free(copy));
                }
                continue;
            }
            let info = ledger.storages[event.id() as usize];
            if matches!(info.kind, Kind::Workspace | Kind::OptimizerState) {
                continue;
            }
            let copy = ledger.storages.len() as u32;
            ledger.storages.push(info);
            references.push(Cell::new(1));
            ledger.events.push(Event::alloc(copy));
            let index = (event.id() - self.first) as usize;
            if self.copies.len() <= index {
                self.copies.resize(index + 1, NONE);
            }
            self.copies[index] = copy;
        }
    }

    /// A handle on the copy of storage `id`, which nothing refers to yet.
    pub fn tensor(&self, cx: &Rc<Context>, id: u32, geometry: Geometry, dtype: DType) -> Option<Tensor> {
        self.copy_of(id).map(|copy| Tensor::fresh(cx, copy, geometry, dtype))
    }

    /// A handle on the copy of storage `id` as the tensor it was made for.
    pub fn whole(&self, cx: &Rc<Context>, id: u32) -> Option<Tensor> {
        let info = cx.ledger.borrow().storages[id as usize];
        self.tensor(cx, id, Geometry::contiguous(&info.dims[..usize::from(info.rank)]), info.dtype)
    }
}

impl Context {
    /// The storages made since `first` that something still refers to, but for what outlives the run.
    pub fn alive_since(&self, first: u32) -> Vec<u32> {
        let (ledger, references) = (self.ledger.borrow(), self.references.borrow());
        (first..ledger.storages.len() as u32)
            .filter(|&id| {
                let info = &ledger.storages[id as usize];
                let stays = matches!(info.kind, Kind::Workspace | Kind::OptimizerState);
                references[id as usize].get() > 0 && info.bytes > 0 && !stays
            })
            .collect()
    }

    /// How many events there are so far.
    pub fn position(&self) -> usize {
        self.ledger.borrow().events.len()
    }

    /// The id the next storage will have.
    pub fn next_storage(&self) -> u32 {
        self.ledger.borrow().storages.len() as u32
    }
}
