//! What a run may take of the machine that estimates it, and why PyTorch fails on it, if it does.

use plimsoll_ground::Error;

use super::checkpoint::Frame;
use super::context::Context;

impl Context {
    /// So many entries later what is written is worth weighing again: whoever asks does so at every storage and node.
    const WEIGHED_AFTER: usize = 64;

    /// About what the run holds besides its ledger, in bytes: the count of each storage's references, and the graph of the forward
    /// that runs.
    fn beside(&self) -> u64 {
        /// A node with its formula and two tensors that it keeps.
        const NODE: u64 = 400;
        const REFERENCES: u64 = 4;
        let nodes = u64::from(self.next_seq.get().saturating_sub(self.graph.get()));
        nodes * NODE + self.references.borrow().len() as u64 * REFERENCES
    }

    /// Bytes that the run takes of our own memory, about.
    pub fn weight(&self) -> u64 {
        self.recorder.borrow().bytes().saturating_add(self.beside())
    }

    /// PyTorch fails here. The run goes on; whoever executes it asks in the end. The first reason counts.
    pub fn refuse(&self, why: impl FnOnce() -> Error) {
        if !self.is_refused() {
            *self.refused.borrow_mut() = Some(why());
        }
    }

    /// Whether PyTorch fails on what ran by now.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.borrow().is_some()
    }

    /// Why PyTorch fails on it, if it does.
    pub fn refusal(&self) -> Option<Error> {
        self.refused.take()
    }

    /// Whether more was written than a run may have ([`Recorder::over`](plimsoll_ledger::Recorder::over)): it is to be given up as soon as may be. A recomputation
    /// that has begun is not: who asked for it waits for what it saves. It writes no more than its forward did. So is a run whose
    /// copies turned out to be none: it is done again without them, and what it still wrote would be paid twice.
    pub fn exhausted(&self) -> bool {
        let known = self.exhausted.get() || self.repeats_failed();
        if !known && !self.is_to_be_weighed() {
            return false;
        }
        if self.frames.borrow().iter().any(Frame::recomputes) {
            return false;
        }
        if !known {
            self.weighed_next.set(self.written() + Self::WEIGHED_AFTER);
            self.exhausted.set(self.recorder.borrow().over(self.beside()));
        }
        known || self.exhausted.get()
    }

    /// As [`Context::exhausted`], of all that is written by now.
    pub fn exhausted_by_now(&self) -> bool {
        self.weighed_next.set(0);
        self.exhausted()
    }

    /// Whether enough was written since the last time.
    #[inline]
    fn is_to_be_weighed(&self) -> bool {
        self.written() >= self.weighed_next.get()
    }

    /// Entries of the ledger and nodes of the graph.
    #[inline]
    fn written(&self) -> usize {
        self.recorder.borrow().entries() + self.next_seq.get() as usize
    }
}
