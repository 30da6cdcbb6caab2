//! One row of the grid: every batch at one sequence.

use plimsoll_ground::Result;

use super::steps::Steps;
use crate::envelope::Candidate;
use crate::{AnyBatch, CardMemory, Envelope};

/// A run of batches that share a stream.
#[derive(Debug)]
pub struct Piece {
    /// Index of its first batch.
    pub first: usize,
    /// Index of its last batch.
    pub last: usize,
    /// The stream, good from the first to the last.
    pub stream: AnyBatch,
    /// Among what its peaks are, where that is known.
    pub candidates: Option<Vec<Candidate>>,
}

/// A piece, with the peaks of its live memory.
#[derive(Debug)]
pub struct Part {
    /// Index of its first batch.
    pub first: usize,
    /// Index of its last batch.
    pub last: usize,
    /// The stream, good from the first to the last.
    pub stream: AnyBatch,
    /// Its peak of live memory.
    pub envelope: Envelope,
    /// The card, with the libraries that this stream loads: a length may take another attention than the next.
    pub memory: CardMemory,
}

impl Part {
    /// Of a piece of these batches, on a card.
    pub fn of(piece: Piece, batches: &[u64], card: &CardMemory) -> Self {
        let Piece { first, last, stream, candidates } = piece;
        let range = (batches[first], batches[last]);
        let envelope = match candidates {
            Some(candidates) => Envelope::among(candidates, &stream, range),
            None => Envelope::new(&stream, range.0, range.1),
        };
        let memory = card.running(&stream.ledger);
        Self { first, last, stream, envelope, memory }
    }

    /// The one of a row's that has this column.
    pub fn at(row: &[Self], column: usize) -> Option<&Self> {
        row.iter().find(|part| (part.first..=part.last).contains(&column))
    }
}

/// Where rows before this one turned, counted in tokens: what turns with the batch mostly turns with batch times sequence
/// (an embedding's backward sorts from 3,073 tokens on), so the next row is looked at there first.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// Of each turn the most tokens that still did as fewer do, and the fewest that did not.
    between: Vec<(u64, u64)>,
}

impl Turns {
    /// The places around which `batches` of `seq` tokens should turn, of each turn the last before and the first behind.
    fn places(&self, batches: &[u64], seq: u64) -> Vec<usize> {
        let first_over = |tokens: u64| batches.partition_point(|batch| batch.saturating_mul(seq) <= tokens);
        let around = |&(same, other): &(u64, u64)| [first_over(same).saturating_sub(1), first_over(other - 1)];
        self.between.iter().flat_map(around).collect()
    }

    /// What another search found as well.
    pub fn and(mut self, other: Self) -> Self {
        for (same, above) in other.between {
            self.narrow(same, above, 1);
        }
        self
    }

    /// A row turned between these two batches.
    pub fn narrow(&mut self, same: u64, other: u64, seq: u64) {
        let here = (same.saturating_mul(seq), other.saturating_mul(seq));
        let both = |known: &(u64, u64)| (known.0.max(here.0), known.1.min(here.1));
        match self.between.iter_mut().find(|known| both(known).0 < both(known).1) {
            Some(known) => *known = both(known),
            None => self.between.push(here),
        }
    }
}

/// The pieces of the batches from `first` to `last` of one sequence, ascending, from the steps at their ends.
///
/// Where the steps at two batches are the same event for event, every size makes a line and a step between them lies on it,
/// so do the others in between: an op that goes another way from some batch on does not come back. Elsewhere the range is
/// cut where the step turns, or halved.
///
/// # Errors
/// The first batch that cannot be traced.
fn pieces(
    steps: &Steps<'_>,
    (batches, first, last): (&[u64], usize, usize),
    seq: Option<u64>,
    turns: &mut Turns,
) -> Result<Vec<Piece>> {
    let step = |at: usize| steps.at(batches[at], seq);
    let tokens = seq.unwrap_or(1);
    let mut pieces = Vec::new();
    let mut open = vec![(first, last)];
    while let Some((first, last)) = open.pop() {
        let low = step(first)?;
        if first == last {
            pieces.push(Piece { first, last, stream: AnyBatch::of(&low), candidates: None });
            continue;
        }
        let high = step(last)?;
        if !low.does_as(&high) {
            // The last batch that does as the first one.
            let (mut same, mut other) = (first, last);
            let look = |at: usize, same: &mut usize, other: &mut usize| -> Result<()> {
                if *same < at && at < *other {
                    *(if step(at)?.does_as(&low) { same } else { other }) = at;
                }
                Ok(())
            };
            for at in turns.places(batches, tokens) {
                look(at, &mut same, &mut other)?;
            }
            while other - same > 1 {
                look(same + (other - same) / 2, &mut same, &mut other)?;
            }
            turns.narrow(batches[same], batches[other], tokens);
            open.extend([(other, last), (first, same)]);
            continue;
        }
        let middle = first + (last - first) / 2;
        let stream = match AnyBatch::between(&low, batches[first], &high, batches[last]) {
            Some(stream) if last - first > 1 && !stream.is_at(&*step(middle)?, batches[middle]) => None,
            stream => stream,
        };
        if let Some(stream) = stream {
            pieces.push(Piece { first, last, stream, candidates: None });
        } else {
            open.extend([(middle + 1, last), (first, middle)]);
        }
    }
    Ok(pieces)
}

/// The pieces of a whole row, ascending: those that are known, each within one block, and what has to be traced between them.
///
/// # Errors
/// The first batch that cannot be traced.
pub fn whole(
    steps: &Steps<'_>,
    batches: &[u64],
    seq: Option<u64>,
    mut known: Vec<Piece>,
    turns: &mut Turns,
) -> Result<Vec<Piece>> {
    known.sort_by_key(|piece| piece.first);
    let mut known = known.into_iter().peekable();
    let mut row = Vec::new();
    for (first, last) in blocks(batches) {
        let mut from = first;
        while from <= last {
            match known.next_if(|piece| piece.first <= from) {
                Some(piece) => {
                    from = piece.last + 1;
                    row.push(piece);
                }
                None => {
                    let to = known.peek().map_or(last, |piece| (piece.first - 1).min(last));
                    row.extend(pieces(steps, (batches, from, to), seq, turns)?);
                    from = to + 1;
                }
            }
        }
    }
    Ok(row)
}

/// Which batches are looked at together. One sample stands for itself: where a dimension is 1, reshaping copies less.
pub fn blocks(batches: &[u64]) -> Vec<(usize, usize)> {
    match batches {
        [] => Vec::new(),
        [1, _, ..] => vec![(0, 0), (1, batches.len() - 1)],
        _ => vec![(0, batches.len() - 1)],
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn a_row_is_looked_at_where_those_before_turned() {
        let batches: Vec<u64> = (1..=64).collect();
        let mut turns = Turns::default();
        // 3,072 tokens and more: 24 x 128 still does as one sample, 25 x 128 does not.
        turns.narrow(24, 25, 128);
        let places =
            |turns: &Turns, seq| turns.places(&batches, seq).iter().map(|at| batches[*at]).collect::<Vec<u64>>();
        assert_eq!(places(&turns, 128), [24, 25]);
        assert_eq!(places(&turns, 256), [12, 13]);
        let near = places(&turns, 384);
        assert!(near[0] <= 8 && near[1] >= 9 && near[1] - near[0] <= 1, "{near:?}");
        // A row that turns elsewhere is believed, and so are those before.
        turns.narrow(40, 41, 512);
        assert_eq!(places(&turns, 512), [6, 7, 40, 41]);
        // A row that looks closer narrows the turn that it saw.
        turns.narrow(164, 165, 128 - 3);
        assert_eq!(turns.between, [(3072, 3200), (20_500, 20_625)]);
    }
}
