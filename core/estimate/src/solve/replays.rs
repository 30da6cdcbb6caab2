//! Which cells of a grid are replayed, and in which order.

use plimsoll_ground::Bytes;

use super::cell::{Cell, Known, Row};
use super::parallel;
use super::row::Part;
use crate::{CardMemory, Verdict};

/// How many cells are replayed before the rest is put in order anew.
const ROUND: usize = 24;

/// What the allocator reserves beyond live memory, in thousandths of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u64);

impl Share {
    /// The middle of 1,530 steps of nine models in five recipes was 90; none was above 487.
    const USUAL: Self = Self(90);

    /// Of a cell that was replayed on the card.
    pub fn of(cell: &Cell, memory: &CardMemory) -> Option<Self> {
        if cell.known != Known::Exact || cell.verdict == Verdict::DoesNotFit {
            return None;
        }
        let over = cell.process.saturating_sub(cell.requested + memory.context);
        let thousandths = u128::from(over.get()) * 1000 / u128::from(cell.requested.get().max(1));
        u64::try_from(thousandths).ok().map(Self)
    }

    /// The process that live memory of `requested` makes with it.
    pub fn process(self, requested: Bytes, memory: &CardMemory) -> Bytes {
        let over = u128::from(requested.get()) * u128::from(self.0) / 1000;
        requested + memory.context + Bytes::new(u64::try_from(over).unwrap_or(0))
    }
}

/// The replays of a grid.
pub struct Replays<'a> {
    /// By row.
    pub streams: &'a [Vec<Part>],
    /// How many events may be replayed.
    pub effort: u64,
}

/// Row and column.
type Place = (usize, usize);

impl<'a> Replays<'a> {
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
        let mut open = places(rows, Known::Near);
        let (mut share, mut shares) = (Share::USUAL, Vec::new());
        while !open.is_empty() {
            // The nearest last, to be popped.
            open.sort_by_cached_key(|&(r, c)| {
                let distance = Part::at(&self.streams[r], c).map_or(0, |part| {
                    let process = share.process(rows[r].cells[c].requested, &part.memory);
                    process.get().abs_diff(part.memory.limits.load_line.get())
                });
                (std::cmp::Reverse(distance), r, c)
            });
            let nearest: Vec<Place> = open.split_off(open.len().saturating_sub(ROUND));
            let (round, spent) = self.within_effort(nearest.into_iter().rev());
            let cells = parallel::map(round, |((r, c), part)| {
                let cell = within(part, rows[r].cells[c]);
                ((r, c), cell, Share::of(&cell, &part.memory))
            });
            for ((r, c), cell, share) in cells {
                rows[r].cells[c] = cell;
                shares.extend(share);
            }
            if spent {
                return share;
            }
            shares.sort_unstable_by_key(|s| s.0);
            share = shares.get(shares.len() / 2).copied().unwrap_or(share);
        }
        let mut deep = places(rows, Known::AtLeast);
        deep.sort_by_key(|&(r, c)| (rows[r].cells[c].requested, r, c));
        let (deep, _) = self.within_effort(deep.into_iter());
        let cells = parallel::map(deep, |((r, c), part)| ((r, c), without_end(part, rows[r].cells[c])));
        for ((r, c), cell) in cells {
            rows[r].cells[c] = cell;
        }
        share
    }

    /// The first of `places` that there is effort left to replay, with their streams, and whether it is spent.
    fn within_effort(&mut self, places: impl Iterator<Item = Place>) -> (Vec<(Place, &'a Part)>, bool) {
        let mut taken = Vec::new();
        for (row, column) in places {
            let part = self.streams.get(row).and_then(|row| Part::at(row, column));
            let Some(part) = part else { return (taken, true) };
            let Some(left) = self.effort.checked_sub(part.stream.ledger.events.len() as u64) else {
                return (taken, true);
            };
            self.effort = left;
            taken.push(((row, column), part));
        }
        (taken, false)
    }
}

/// A cell as the card has it, or that it runs out.
fn within(part: &Part, cell: Cell) -> Cell {
    let memory = &part.memory;
    let sizes = part.stream.sizes(cell.batch);
    if let Some(outcome) = memory.within(&part.stream.ledger, |id| sizes.of(id), None) {
        Cell { process: outcome.process, verdict: outcome.verdict, known: Known::Exact, ..cell }
    } else {
        let process = cell.process.max(memory.limits.capacity);
        Cell { process, verdict: Verdict::DoesNotFit, known: Known::AtLeast, ..cell }
    }
}

/// A cell that runs out, as a card without end has it.
fn without_end(part: &Part, cell: Cell) -> Cell {
    let sizes = part.stream.sizes(cell.batch);
    let outcome = part.memory.without_end(&part.stream.ledger, |id| sizes.of(id), cell.requested, None);
    Cell { process: outcome.process, known: Known::Exact, ..cell }
}
