//! PyTorch's memory snapshots (`torch.cuda.memory._dump_snapshot`), read without running anything: what was alive when, who
//! held the peak, and what lay between.
//!
//! A snapshot is a pickle, and a pickle is a program. [`Snapshot::read`] knows the instructions that make numbers, texts, lists
//! and dictionaries, and refuses those that name code. The libraries that read pickles copy what is referred to more than once;
//! in a snapshot every frame is, and a few bytes could unfold to any size, so the reader is our own and keeps references.
//!
//! Knows no scenario and no estimate; those who know both lay one over the other.
#![forbid(unsafe_code)]

mod course;
mod parting;
mod pickle;
mod read;
mod summary;

pub use course::{Course, Oom, Step, Storage};
pub use parting::{Parting, Request};
pub use read::{Action, Block, Device, Entry, Frame, Mark, Segment, Snapshot, StackId, State};
pub use summary::{Fragmentation, Held, Summary};

/// The first byte of a pickle, whatever follows.
pub const FIRST: u8 = 0x80;

/// Longest file that is read, in bytes: at the 60 to 90 an event that the tests' snapshots have, more than values are read of.
pub const MOST_BYTES: usize = 512 << 20;
