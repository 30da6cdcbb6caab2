//! Which cells of a sheet are replayed, and in which order.

use crate::Bytes;
use crate::estimate::{Berth, Verdict};

use super::grid::{Cell, Known, Row};
use super::row::Part;

/// How many cells are replayed before the rest is put in order anew.
const ROUND: usize = 24;

/// What the allocator reserves beyond live memory, in thousandths of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u64);

impl Share {
    /// The middle of 1,530 steps of nine models in five recipes was 90; none was above 487.
    const USUAL: Self = Self(90);

    /// Of a cell that was replayed on the card.
    pub fn of(cell: &Cell, berth: &Berth) -> Option<Self> {
        if cell.known != Known::Exact || cell.verdict == Verdict::DoesNotFit {
            return None;
        }
        let over = cell.process.saturating_sub(cell.requested + berth.context);
        let thousandths = u128::from(over.get()) * 1000 / u128::from(cell.requested.get().max(1));
        u64::try_from(thousandths).ok().map(Self)
    }

    /// The process that live memory of `requested` makes with it.
    pub fn process(self, requested: Bytes, berth: &Berth) -> Bytes {
        let over = u128::from(requested.get()) * u128::from(self.0) / 1000;
        requested + berth.context + Bytes::new(u64::try_from(over).unwrap_or(0))
    }
}

/// The replays of a sheet.
pub struct Replays<'a> {
    /// The card.
    pub berth: &'a Berth,
    /// By row.
    pub streams: &'a [Vec<Part>],
    /// How many events may be replayed.
    pub effort: u64,
}

/// Row and column.
type Place = (usize, usize);

impl Replays<'_> {
    /// First the cells whose verdict is open, those nearest to the line first; then those that do not fit, the least
    /// deep first, to say how deep they are. Returns the allocator's usual share here.
    pub fn run(mut self, rows: &mut [Row]) -> Share {
        let places = |rows: &[Row], known: Known| -> Vec<Place> {
            let of_row = |(r, row): (usize, &Row)| {
                let cells = row.cells.iter().enumerate().filter(|(_, cell)| cell.known == known);
                cells.map(|(c, _)| (r, c)).collect::<Vec<Place>>()
            };
            rows.iter().enumerate().flat_map(of_row).collect()
        };
        let line = self.berth.limits.load_line;
        let mut open = places(rows, Known::Near);
        let (mut share, mut shares) = (Share::USUAL, Vec::new());
        while !open.is_empty() {
            // The nearest last, to be popped.
            open.sort_by_key(|&(r, c)| {
                let process = share.process(rows[r].cells[c].requested, self.berth);
                (std::cmp::Reverse(process.get().abs_diff(line.get())), r, c)
            });
            for _ in 0..ROUND {
                let Some((r, c)) = open.pop() else { break };
                if !self.aboard((r, c), &mut rows[r].cells[c]) {
                    return share;
                }
                shares.extend(Share::of(&rows[r].cells[c], self.berth));
            }
            shares.sort_unstable_by_key(|s| s.0);
            share = shares.get(shares.len() / 2).copied().unwrap_or(share);
        }
        let mut deep = places(rows, Known::AtLeast);
        deep.sort_by_key(|&(r, c)| (rows[r].cells[c].requested, r, c));
        for (r, c) in deep {
            if !self.beyond((r, c), &mut rows[r].cells[c]) {
                break;
            }
        }
        share
    }

    /// The stream of a cell, if there is effort left to replay it.
    fn take(&mut self, (row, column): Place) -> Option<&Part> {
        let part = self.streams.get(row)?.iter().find(|part| (part.first..=part.last).contains(&column))?;
        self.effort = self.effort.checked_sub(part.stream.trace.ledger.events.len() as u64)?;
        Some(part)
    }

    fn aboard(&mut self, place: Place, cell: &mut Cell) -> bool {
        let berth = self.berth;
        let Some(part) = self.take(place) else { return false };
        let sizes = part.stream.sizes(cell.batch);
        if let Some(outcome) = berth.aboard(&part.stream.trace.ledger, |id| sizes[id as usize], None) {
            *cell = Cell { process: outcome.process, verdict: outcome.verdict, known: Known::Exact, ..*cell };
        } else {
            let process = cell.process.max(berth.limits.capacity);
            *cell = Cell { process, verdict: Verdict::DoesNotFit, known: Known::AtLeast, ..*cell };
        }
        true
    }

    fn beyond(&mut self, place: Place, cell: &mut Cell) -> bool {
        let berth = self.berth;
        let Some(part) = self.take(place) else { return false };
        let sizes = part.stream.sizes(cell.batch);
        let outcome = berth.beyond(&part.stream.trace.ledger, |id| sizes[id as usize], cell.requested, None);
        *cell = Cell { process: outcome.process, known: Known::Exact, ..*cell };
        true
    }
}
