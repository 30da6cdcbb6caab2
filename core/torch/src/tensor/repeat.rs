//! Doing a stretch of the stream once more without executing it.
//!
//! Micro-batches repeat one another: what the second optimizer step allocates and frees is what the first one did. A
//! stretch is copied event by event with fresh storages, which costs a small part of running the ops again.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use plimsoll_ledger::{DType, Kind, Law};

use super::context::Context;
use super::geometry::Geometry;
use super::storage::Tensor;

/// No storage of the copy stands for this one.
const NONE: u32 = u32::MAX;

/// How far a run has come: how many events, launches and laws it has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub(super) event: usize,
    pub(super) launch: usize,
    pub(super) law: usize,
}

impl Position {
    /// Events since an earlier position.
    pub const fn events_since(self, earlier: Self) -> usize {
        self.event - earlier.event
    }
}

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

    /// Writes everything between two positions once more. What outlives the run (library workspaces, the scaler's state) is
    /// made only once, and its second birth is left out.
    pub fn events(&mut self, cx: &Rc<Context>, range: Range<Position>) {
        let mut recorder = cx.recorder.borrow_mut();
        let mut references = cx.references.borrow_mut();
        let mut next = recorder.ledger().storages.len() as u32;
        let (mut born, mut events) = (Vec::new(), Vec::with_capacity(range.end.event - range.start.event));
        let mut left_out = Vec::new();
        for (at, event) in (range.start.event..).zip(&recorder.ledger().events[range.start.event..range.end.event]) {
            if event.is_free() {
                let Some(copy) = self.copy_of(event.id()) else {
                    left_out.push(at);
                    continue;
                };
                if let Some(count) = references.get(copy as usize) {
                    count.set(0);
                } else if let Some((_, dead)) = born.get_mut((copy as usize).saturating_sub(references.len())) {
                    *dead = true;
                }
                events.push(event.of(copy));
                continue;
            }
            let storage = recorder.ledger().storages[event.id() as usize];
            if matches!(storage.kind, Kind::Workspace | Kind::OptimizerState) {
                left_out.push(at);
                continue;
            }
            born.push((storage, false));
            events.push(event.of(next));
            let index = (event.id() - self.first) as usize;
            if self.copies.len() <= index {
                self.copies.resize(index + 1, NONE);
            }
            self.copies[index] = next;
            next += 1;
        }
        references.extend(born.iter().map(|(_, dead)| Cell::new(u32::from(!dead))));
        recorder.launch_like(range.start.launch..range.end.launch, range.start.event, &left_out);
        recorder.extend(born.into_iter().map(|(storage, _)| storage), events.into_iter());
        for law in range.start.law..range.end.law {
            let law = recorder.ledger().laws[law];
            if let (Some(storage), Some(tokens)) = (self.copy_of(law.storage), self.copy_of(law.tokens)) {
                recorder.law(Law { storage, tokens, ..law });
            }
        }
    }

    /// A handle on the copy of storage `id`, which nothing refers to yet.
    pub fn tensor(&self, cx: &Rc<Context>, id: u32, geometry: Geometry, dtype: DType) -> Option<Tensor> {
        self.copy_of(id).map(|copy| Tensor::fresh(cx, copy, geometry, dtype))
    }

    /// A handle on the copy of storage `id` as the tensor it was made for.
    pub fn whole(&self, cx: &Rc<Context>, id: u32) -> Option<Tensor> {
        let (geometry, dtype) = {
            let recorder = cx.recorder.borrow();
            let storage = &recorder.ledger().storages[id as usize];
            (Geometry::contiguous(recorder.ledger().sizes(storage)), storage.dtype)
        };
        self.tensor(cx, id, geometry, dtype)
    }
}

impl Context {
    /// The storages made since `first` that something still refers to, but for what outlives the run.
    pub fn alive_since(&self, first: u32) -> Vec<u32> {
        let (recorder, references) = (self.recorder.borrow(), self.references.borrow());
        let storages = &recorder.ledger().storages;
        (first..storages.len() as u32)
            .filter(|&id| {
                let storage = &storages[id as usize];
                let stays = matches!(storage.kind, Kind::Workspace | Kind::OptimizerState);
                references[id as usize].get() > 0 && storage.bytes > 0 && !stays
            })
            .collect()
    }

    /// How far the run has come.
    pub fn position(&self) -> Position {
        let recorder = self.recorder.borrow();
        let ledger = recorder.ledger();
        Position { event: ledger.events.len(), launch: ledger.launches.len(), law: ledger.laws.len() }
    }

    /// The id the next storage will have.
    pub fn next_storage(&self) -> u32 {
        self.recorder.borrow().ledger().storages.len() as u32
    }
}
