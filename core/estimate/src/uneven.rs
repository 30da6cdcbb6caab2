//! The few buffers whose size is no line over the batch, and what it is instead.
//!
//! An embedding's backward over many tokens sums rows of its gradient in parts: one part for every ten tokens and one
//! for every row that occurs (`ops::inside::after_sorting`). A tenth of the tokens is rounded down, and no more rows occur
//! than the table has. Both follow from the number of tokens, which is the size of a buffer before them.

use plimsoll_ground::Bytes;
use plimsoll_ledger::{Kind, Ledger, StorageInfo};

use super::stream::Line;

/// How many rows one warp sums, as in `ops::inside::embedding`.
const ROWS_PER_WARP: u64 = 10;

/// The buffers that follow the gradient of the table: the rows' beginnings, two lists of rows, and two of parts, by
/// their place.
const SEGMENTS: [usize; 2] = [2, 3];
const PARTS: [usize; 2] = [5, 6];

/// A buffer of `unit` bytes for each row that occurs, and for each tenth of the tokens where `parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uneven {
    /// Which storage.
    pub id: u32,
    /// The storage that holds one 8-byte number a token.
    pub tokens: u32,
    /// Rows of the table.
    pub rows: u64,
    /// Bytes of a row or part.
    pub unit: u64,
    /// Whether there is one for every ten tokens too.
    pub parts: bool,
}

/// How many tokens a buffer of 8-byte numbers holds.
pub const fn tokens(bytes: u64) -> u64 {
    bytes / 8
}

impl Uneven {
    /// Its bytes for so many tokens.
    pub const fn bytes(&self, tokens: u64) -> u64 {
        let rows = if tokens < self.rows { tokens } else { self.rows };
        let parts = if self.parts { tokens / ROWS_PER_WARP } else { 0 };
        self.unit.saturating_mul(parts + rows)
    }

    /// Its size at `batch`, where `line` says the bytes of the tokens.
    pub fn at(&self, line: Line, batch: u64) -> Bytes {
        Bytes::new(self.bytes(tokens(line.at(batch))))
    }

    /// The most it takes up to a batch, as a bound for sums of a few.
    pub fn most(&self, line: Line, last: u64) -> i64 {
        const BOUND: u64 = 1 << 58;
        self.at(line, last).get().min(BOUND).saturating_add(512) as i64
    }

    /// Patches `sizes`, where those of the tokens are right already.
    pub fn patch(uneven: &[Self], sizes: &mut [u64]) {
        for buffer in uneven {
            sizes[buffer.id as usize] = buffer.bytes(tokens(sizes[buffer.tokens as usize]));
        }
    }
}

/// The uneven buffers of a run.
pub fn uneven(ledger: &Ledger) -> Vec<Uneven> {
    let mut found = Vec::new();
    let storages = &ledger.storages;
    let is_table = |s: &StorageInfo| s.op == "embedding_dense_backward" && s.kind != Kind::Scratch && s.rank == 2;
    let scratch =
        |at: usize| storages.get(at).filter(|s| s.op == "embedding_dense_backward" && s.kind == Kind::Scratch);
    for (at, table) in storages.iter().enumerate().filter(|(_, s)| is_table(s)) {
        let Some(count) = scratch(at + 1).filter(|s| s.rank == 1).map(|s| s.dims[0]) else { continue };
        for (place, parts) in SEGMENTS.map(|p| (p, false)).into_iter().chain(PARTS.map(|p| (p, true))) {
            let id = at + 1 + place;
            let Some(s) = scratch(id) else { continue };
            let mut buffer = Uneven { id: id as u32, tokens: at as u32 + 1, rows: table.dims[0], unit: 1, parts };
            // The last place may hold a table instead.
            let entries = buffer.bytes(count);
            if s.rank > 0 && s.dims[0] == entries && entries > 0 && s.bytes % entries == 0 {
                buffer.unit = s.bytes / entries;
                found.push(buffer);
            }
        }
    }
    found
}
