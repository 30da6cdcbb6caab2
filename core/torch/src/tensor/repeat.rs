//! Doing a stretch of the stream once more without executing it.
//!
//! Micro-batches repeat one another: what the second optimizer step allocates and frees is what the first one did. A
//! stretch is copied event by event with fresh storages, which costs a small part of running the ops again.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use plimsoll_ledger::{DType, Kind, Law, Recorder};

use super::context::Context;
use super::geometry::Geometry;
use super::storage::Tensor;
use super::unit_lines::Stretch;

/// How far a run has come: how many events, launches and laws it has written, how much hooks have heard, and the number of the next
/// node of the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub(super) event: usize,
    pub(super) launch: usize,
    pub(super) law: usize,
    pub(super) heard: usize,
    pub(super) node: u32,
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
        self.copies.get(index).copied().filter(|&c| c != Recorder::NO_COPY)
    }

    /// Writes everything between two positions once more. What outlives the run (library workspaces, the scaler's state) is
    /// made only once, and its second birth is left out.
    pub fn events(&mut self, cx: &Rc<Context>, range: Range<Position>) {
        let mut recorder = cx.recorder.borrow_mut();
        let mut references = cx.references.borrow_mut();
        let begin = recorder.ledger().events.len();
        let events = range.start.event..range.end.event;
        // Whatever comes is referred to until its end comes by.
        let before = references.len();
        references.resize(before + events.len(), Cell::new(1));
        let dies = |copy: u32| {
            if let Some(count) = references.get(copy as usize) {
                count.set(0);
            }
        };
        let left_out = recorder.again(events, self.first, &mut self.copies, dies);
        references.truncate(recorder.ledger().storages.len());
        recorder.launch_like(range.start.launch..range.end.launch, range.start.event, begin, &left_out);
        for law in range.start.law..range.end.law {
            let law = recorder.ledger().laws[law];
            if let Some(storage) = self.copy_of(law.storage) {
                recorder.law(Law { storage, ..law });
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

    /// The storages made since `first` that something still refers to, but for what outlives the run.
    pub fn alive_since(&self, first: u32) -> Vec<u32> {
        let (recorder, references) = (self.recorder.borrow(), self.references.borrow());
        let since = first as usize;
        let storages = recorder.ledger().storages.get(since..).unwrap_or_default();
        let referred = references.get(since..).unwrap_or_default();
        let stays = |kind: Kind| matches!(kind, Kind::Workspace | Kind::OptimizerState);
        let all = (first..).zip(referred.iter().zip(storages));
        let alive = all.filter(|(_, (count, s))| count.get() > 0 && s.bytes > 0 && !stays(s.kind));
        alive.map(|(id, _)| id).collect()
    }

    /// How far the run has come.
    pub fn position(&self) -> Position {
        let recorder = self.recorder.borrow();
        let ledger = recorder.ledger();
        Position {
            event: ledger.events.len(),
            launch: ledger.launches.len(),
            law: ledger.laws.len(),
            heard: self.repetitions.listening.heard.borrow().len(),
            node: self.next_node(),
        }
    }

    /// The id the next storage will have.
    pub fn next_storage(&self) -> u32 {
        self.recorder.borrow().ledger().storages.len() as u32
    }
}
