//! What fits over a sheet of batches and sequences.
//!
//! Live memory is exact in every cell: each row's stream is an affine function of the batch, and the envelope of its
//! peaks is read off. What the allocator reserves beyond it is not monotone in anything (a batch may fit where a smaller
//! one does not), so a cell's verdict and peaks come from a replay of its own, the same a single estimate makes. Where
//! live memory alone exceeds the card no replay is needed to know that it does not fit.
//!
//! A sheet of thousands of cells is drawn in one go, so replays are limited to [`EFFORT`] events: they are spent where
//! the answer is open, from the capacity downwards. Every cell says how it is known.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::estimate::{Berth, DeviceLimits, Trace, Verdict, card};
use crate::{Bytes, Error, Result, Scenario};

use super::row::{Part, parts};
use super::variant::{takes_sequences, with_sizes};

/// Events replayed for a sheet when the caller sets no other limit: sheets of some hundred cells are exact throughout.
pub const EFFORT: u64 = 4_000_000;

/// The most cells a sheet may have.
pub const MOST_CELLS: usize = 1 << 14;

/// Verdicts over batches and sequences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grid {
    /// The micro-batches, ascending.
    pub batches: Vec<u64>,
    /// A row for each sequence, ascending.
    pub rows: Vec<Row>,
    /// The card's limits.
    pub device: DeviceLimits,
}

/// One sequence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its length; `None` where a sample has no sequence.
    pub seq: Option<u64>,
    /// A cell for each batch; empty where the row is refused.
    pub cells: Vec<Cell>,
    /// Why it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    /// It does not fit for certain; `process` is live memory and context, the least it could be.
    AtLeast,
    /// Far from the line and not replayed: `process` takes the allocator's share from the nearest replayed cell of the
    /// row, and `verdict` follows from it.
    Near,
}

impl Grid {
    /// The cell of a batch and a sequence, where there is one.
    pub fn cell(&self, batch: u64, seq: Option<u64>) -> Option<&Cell> {
        self.rows.iter().find(|row| row.seq == seq)?.cells.iter().find(|cell| cell.batch == batch)
    }
}

/// A cell that waits for its replay.
struct Open {
    row: usize,
    column: usize,
    requested: Bytes,
}

/// Estimates every pair of `batches` and `seqs`, everything else as in the scenario; replays at most about `effort`
/// events. No `seqs`: the scenario's own. A target sequence that is as long as the scenario's sequence follows it.
///
/// # Errors
/// No batches, too many cells, sequences for a model that has none, and all of [`crate::estimate::Run::new`] that does
/// not come from a sequence: a row whose sequence is refused says so itself.
pub fn grid(scenario: &Scenario, batches: &[u64], seqs: &[u64], effort: u64) -> Result<Grid> {
    let batches = ascending(batches);
    let seqs = ascending(seqs);
    let (Some(first), Some(largest)) = (batches.first().copied(), batches.last().copied()) else {
        return Err(Error::new("grid", "there are no batches", "give some, such as 1,2,4,8"));
    };
    if batches.len().saturating_mul(seqs.len().max(1)) > MOST_CELLS {
        let problem = format!("{} batches by {} sequences are too many cells", batches.len(), seqs.len());
        return Err(Error::new("grid", problem, format!("ask for at most {MOST_CELLS}")));
    }
    takes_sequences(scenario, &seqs)?;
    let berth = Berth::new(card(scenario)?, scenario);
    let seqs: Vec<Option<u64>> =
        if seqs.is_empty() { vec![scenario.input.seq] } else { seqs.into_iter().map(Some).collect() };

    let mut rows = Vec::with_capacity(seqs.len());
    let mut streams = Vec::with_capacity(seqs.len());
    for &seq in &seqs {
        let outcome = with_sizes(scenario, first, seq)
            .and_then(|_| with_sizes(scenario, largest, seq))
            .and_then(|_| row_parts(scenario, &batches, seq));
        match outcome {
            Ok(parts) => {
                rows.push(Row { seq, cells: first_look(&parts, &batches, &berth), refused: None });
                streams.push(parts);
            }
            // What is wrong with the only row is wrong with the question.
            Err(error) if seqs.len() == 1 => return Err(error),
            Err(error) => {
                rows.push(Row { seq, cells: Vec::new(), refused: Some(error.to_string()) });
                streams.push(Vec::new());
            }
        }
    }
    replay(&mut rows, &streams, &berth, effort);
    for row in &mut rows {
        estimate_rest(&mut row.cells, &berth);
    }
    Ok(Grid { batches, rows, device: berth.limits })
}

fn ascending(sizes: &[u64]) -> Vec<u64> {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn row_parts(scenario: &Scenario, batches: &[u64], seq: Option<u64>) -> Result<Vec<Part>> {
    let mut traced: BTreeMap<u64, Rc<Trace>> = BTreeMap::new();
    parts(batches, &mut |batch| {
        if let Some(trace) = traced.get(&batch) {
            return Ok(Rc::clone(trace));
        }
        let trace = Rc::new(Trace::new(&with_sizes(scenario, batch, seq)?)?);
        traced.insert(batch, Rc::clone(&trace));
        Ok(trace)
    })
}

/// What live memory alone says.
fn first_look(parts: &[Part], batches: &[u64], berth: &Berth) -> Vec<Cell> {
    let mut cells = Vec::with_capacity(batches.len());
    for part in parts {
        for &batch in &batches[part.first..=part.last] {
            let requested = part.envelope.at(batch).bytes;
            let (verdict, known) = if berth.is_too_small_for(requested) {
                (Verdict::DoesNotFit, Known::AtLeast)
            } else {
                (Verdict::Fits, Known::Near)
            };
            cells.push(Cell { batch, requested, process: requested + berth.context, verdict, known });
        }
    }
    cells
}

/// Replays cells: first those whose verdict is open, the deepest first, then those that do not fit, the least deep first.
fn replay(rows: &mut [Row], streams: &[Vec<Part>], berth: &Berth, effort: u64) {
    let mut open: Vec<Open> = Vec::new();
    for (row, line) in rows.iter().enumerate() {
        open.extend(line.cells.iter().enumerate().map(|(column, c)| Open { row, column, requested: c.requested }));
    }
    let room = berth.room();
    let is_open = |requested: Bytes| requested <= room;
    open.sort_by_key(|cell| {
        let depth = cell.requested.get();
        (!is_open(cell.requested), if is_open(cell.requested) { Reverse(depth) } else { Reverse(u64::MAX - depth) })
    });
    let mut left = effort;
    for Open { row, column, requested } in open {
        let Some(part) = streams[row].iter().find(|part| (part.first..=part.last).contains(&column)) else { continue };
        let ledger = &part.stream.trace.ledger;
        let events = ledger.events.len() as u64;
        if left < events {
            return;
        }
        left -= events;
        let cell = &mut rows[row].cells[column];
        let sizes = part.stream.sizes(cell.batch);
        let outcome = berth.outcome(ledger, |id| sizes[id as usize], requested, None);
        cell.process = outcome.process;
        cell.verdict = outcome.verdict;
        cell.known = Known::Exact;
    }
}

/// Gives the cells that were not replayed the allocator's share of the next deeper cell of the row that was.
fn estimate_rest(cells: &mut [Cell], berth: &Berth) {
    let mut replayed: Option<Cell> = None;
    for cell in cells.iter_mut().rev() {
        match cell.known {
            Known::Exact => replayed = Some(*cell),
            Known::AtLeast => {}
            Known::Near => {
                let share = replayed.map_or(Bytes::ZERO, |deeper| {
                    let over = deeper.process.saturating_sub(deeper.requested + berth.context);
                    let scaled = u128::from(over.get()) * u128::from(cell.requested.get())
                        / u128::from(deeper.requested.get().max(1));
                    Bytes::new(u64::try_from(scaled).unwrap_or(0))
                });
                cell.process = cell.requested + berth.context + share;
                cell.verdict = if cell.process <= berth.limits.load_line { Verdict::Fits } else { Verdict::Tight };
            }
        }
    }
}
