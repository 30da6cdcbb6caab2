//! What kernels do: how many operations, and how many bytes they move.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use crate::{DType, OpId};

/// What one launch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    /// The op.
    pub op: OpId,
    /// The element type of its operands: what the operations are done in.
    pub dtype: DType,
    /// Floating-point operations of matrix products, convolutions and attention, a multiplication and an addition counting
    /// as two, as `torch.utils.flop_counter` counts them; 0 for everything else.
    pub flops: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// A launch's work: its place in [`crate::Ledger::works`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub u32);

/// That a kernel ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// How many events there were before it.
    pub at: u32,
    /// What it does.
    pub work: WorkId,
}

/// Finds the number of work that was seen before.
#[derive(Debug, Default)]
pub(crate) struct WorkIndex(HashMap<Work, WorkId, FxBuildHasher>);

impl WorkIndex {
    /// The number of this work in `works`, which gets it if it is new.
    pub fn of(&mut self, works: &mut Vec<Work>, work: Work) -> WorkId {
        *self.0.entry(work).or_insert_with(|| {
            works.push(work);
            WorkId(works.len() as u32 - 1)
        })
    }
}
