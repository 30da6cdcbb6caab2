//! What fits over batches and sequences.
//!
//! Live memory is exact in every cell: each row's stream is an affine function of the batch, and the envelope of its
//! peaks is read off. What the allocator reserves beyond it is not monotone in anything (a batch may fit where a smaller
//! one does not), so a cell's verdict and peaks come from a replay of its own, the same a single estimate makes. Where
//! live memory alone exceeds the card no replay is needed to know that it does not fit.
//!
//! A grid of thousands of cells is drawn in one go, so replays are limited to [`EFFORT`] events: they are spent where
//! the answer is open, nearest to the load line first. Every cell says how it is known.

use plimsoll_ground::{Error, Result};
use plimsoll_scenario::Scenario;
use serde::{Deserialize, Serialize};

use super::bands::Bands;
use super::cell::{Cell, Known, Row};
use super::parallel;
use super::replays::{Replays, Share};
use super::row::{Part, Turns, whole};
use super::steps::Steps;
use super::variant::{takes_sequences, with_sizes};
use crate::{CardMemory, DeviceLimits, Verdict, card};

/// Events replayed for a grid when the caller sets no other limit: a hundred cells of a model of 32 layers.
pub const EFFORT: u64 = 2_000_000;

/// The most cells a grid may have.
pub const MOST_CELLS: usize = 1 << 14;

/// Verdicts over batches and sequences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// The micro-batches, ascending.
    pub batches: Vec<u64>,
    /// A row for each sequence, ascending.
    pub rows: Vec<Row>,
    /// The card's limits.
    pub device: DeviceLimits,
}

impl Grid {
    /// The cell of a batch and a sequence, where there is one.
    pub fn cell(&self, batch: u64, seq: Option<u64>) -> Option<&Cell> {
        self.rows.iter().find(|row| row.seq == seq)?.cells.iter().find(|cell| cell.batch == batch)
    }
}

/// Estimates every pair of `batches` and `seqs`, everything else as in the scenario; replays at most about `effort`
/// events. No `seqs`: the scenario's own. A target sequence that is as long as the scenario's sequence follows it.
///
/// # Errors
/// No batches, too many cells, sequences for a model that has none, and all of [`crate::Run::new`] that does
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
    let memory = CardMemory::new(card(scenario)?, scenario);
    let seqs: Vec<Option<u64>> =
        if seqs.is_empty() { vec![scenario.input.seq] } else { seqs.into_iter().map(Some).collect() };

    // A sequence may be refused and the others stand; what is wrong with all of them is wrong with the question.
    let mut refused: Vec<Option<Error>> = Vec::with_capacity(seqs.len());
    for &seq in &seqs {
        let sound = with_sizes(scenario, first, seq).and_then(|_| with_sizes(scenario, largest, seq));
        refused.push(sound.err());
    }
    let sound = seqs.iter().zip(&refused).filter(|(_, error)| error.is_none()).filter_map(|(seq, _)| *seq);
    let steps = Steps::new(scenario);
    let bands = Bands::new(&steps, &batches, &sound.collect::<Vec<u64>>());
    let row = |seq: Option<u64>, turns: &mut Turns| -> Result<Vec<Part>> {
        let known = seq.map(|seq| bands.row(seq)).unwrap_or_default();
        let pieces = whole(&steps, &batches, seq, known, turns)?;
        Ok(pieces.into_iter().map(|piece| Part::of(piece, &batches, &memory)).collect())
    };
    // Where the first and the last row turn, between them of the fewest tokens and of the most, the others are looked at.
    let mut turns = bands.turns.clone();
    let mut asked: Vec<Option<u64>> =
        seqs.iter().zip(&refused).filter(|(_, error)| error.is_none()).map(|(seq, _)| *seq).collect();
    let last = if asked.len() > 1 { asked.pop() } else { None };
    let last = last.map(|seq| row(seq, &mut turns));
    let first = (!asked.is_empty()).then(|| asked.remove(0)).map(|seq| row(seq, &mut turns));
    let others = parallel::map(asked, |seq| row(seq, &mut turns.clone()));
    let lines: Vec<_> = first.into_iter().chain(others).chain(last).collect();
    let mut lines = lines.into_iter();
    let mut rows = Vec::with_capacity(seqs.len());
    let mut streams: Vec<Vec<Part>> = Vec::with_capacity(seqs.len());
    for (&seq, error) in seqs.iter().zip(&mut refused) {
        let outcome = if error.is_some() { None } else { lines.next() };
        let line = outcome.unwrap_or(Ok(Vec::new())).unwrap_or_else(|why| {
            *error = Some(why);
            Vec::new()
        });
        let cells = first_look(&line, &batches);
        rows.push(Row { seq, cells, refused: error.as_ref().map(Error::to_string) });
        streams.push(line);
    }
    if refused.iter().all(Option::is_some) {
        let why = refused.into_iter().flatten().next();
        return Err(why.unwrap_or_else(|| Error::new("grid", "there are no sequences", "give some")));
    }
    let share = Replays { streams: &streams, effort }.run(&mut rows);
    for (row, parts) in rows.iter_mut().zip(&streams) {
        estimate_rest(&mut row.cells, parts, share);
    }
    Ok(Grid { batches, rows, device: memory.limits })
}

fn ascending(sizes: &[u64]) -> Vec<u64> {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// What live memory alone says.
fn first_look(parts: &[Part], batches: &[u64]) -> Vec<Cell> {
    let mut cells = Vec::with_capacity(batches.len());
    for part in parts {
        for &batch in &batches[part.first..=part.last] {
            let requested = part.envelope.at(batch).bytes;
            let (verdict, known) = if part.memory.is_too_small_for(requested) {
                (Verdict::DoesNotFit, Known::AtLeast)
            } else {
                (Verdict::Fits, Known::Near)
            };
            cells.push(Cell { batch, requested, process: requested + part.memory.context, verdict, known });
        }
    }
    cells
}

/// Gives the cells that were not replayed the allocator's share of the next deeper cell of the row that was, or of the
/// next shallower one, or that of all.
fn estimate_rest(cells: &mut [Cell], parts: &[Part], share: Share) {
    let of = |(column, cell): (usize, &Cell)| Share::of(cell, &Part::at(parts, column)?.memory);
    let shares: Vec<Option<Share>> = cells.iter().enumerate().map(of).collect();
    for (column, cell) in cells.iter_mut().enumerate() {
        let Some(memory) = Part::at(parts, column).map(|part| &part.memory) else { continue };
        if cell.known != Known::Near {
            continue;
        }
        let (before, after) = shares.split_at(column);
        let nearest = after.iter().flatten().next().or_else(|| before.iter().rev().flatten().next());
        cell.process = nearest.unwrap_or(&share).process(cell.requested, memory);
        cell.verdict = if cell.process <= memory.limits.load_line {
            Verdict::Fits
        } else if cell.process <= memory.limits.capacity {
            Verdict::Tight
        } else {
            Verdict::DoesNotFit
        };
    }
}
