//! One answer of a grid, and how it is known.

use plimsoll_ground::Bytes;
use serde::{Deserialize, Serialize};

use crate::Verdict;

/// One sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its length; `None` where a sample has no sequence.
    pub seq: Option<u64>,
    /// A cell for each batch; empty where the row is refused.
    pub cells: Vec<Cell>,
    /// Why it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// One batch at one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The micro-batch.
    pub batch: u64,
    /// Peak of live memory, to the byte.
    pub requested: Bytes,
    /// Peak of the process, as far as `known` says.
    pub process: Bytes,
    /// Whether it fits.
    pub verdict: Verdict,
    /// How `process` and `verdict` are known.
    pub known: Known,
}

/// How a cell's answer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// Replayed: the same as a single estimate, to the byte.
    Exact,
    /// It does not fit for certain; `process` is the least it could be: live memory and context, or the capacity.
    AtLeast,
    /// Not replayed: `process` takes the allocator's share from the nearest replayed cell of the row, and `verdict`
    /// follows from it.
    Near,
}
