//! One row of the grid: every batch at one sequence.

use std::sync::Arc;

use plimsoll_ground::Result;

use crate::{AnyBatch, Envelope, OneBatch};

/// A run of batches that share a stream.
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
}

impl Part {
    fn new(first: usize, last: usize, batches: &[u64], stream: AnyBatch) -> Self {
        let envelope = Envelope::new(&stream, batches[first], batches[last]);
        Self { first, last, stream, envelope }
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

    /// A row turned between these two batches.
    fn narrow(&mut self, same: u64, other: u64, seq: u64) {
        let here = (same.saturating_mul(seq), other.saturating_mul(seq));
        let both = |known: &(u64, u64)| (known.0.max(here.0), known.1.min(here.1));
        match self.between.iter_mut().find(|known| both(known).0 < both(known).1) {
            Some(known) => *known = both(known),
            None => self.between.push(here),
        }
    }
}

/// The batches of a row, and what is known of it before any step is.
#[derive(Debug)]
pub struct Question<'a> {
    /// Ascending.
    pub batches: &'a [u64],
    /// Tokens of a sample; 1 where it has no sequence.
    pub seq: u64,
    /// Batches whose steps cost nothing.
    pub cheap: &'a [u64],
}

/// The parts of a row, from the steps at their ends.
///
/// Where the steps at two batches are the same event for event, every size makes a line and a step between them lies on it,
/// so do the others in between: an op that goes another way from some batch on does not come back. Elsewhere the range is
/// cut where the step turns, or halved. One sample stands for itself: where a dimension is 1, reshaping copies less.
///
/// # Errors
/// The first batch that cannot be traced.
pub fn parts(
    question: &Question<'_>,
    turns: &mut Turns,
    step: &mut impl FnMut(u64) -> Result<Arc<OneBatch>>,
) -> Result<Vec<Part>> {
    let batches = question.batches;
    let mut parts = Vec::new();
    let Some(last) = batches.len().checked_sub(1) else { return Ok(parts) };
    let mut open = if batches[0] == 1 && last > 0 { vec![(1, last), (0, 0)] } else { vec![(0, last)] };
    while let Some((first, last)) = open.pop() {
        let low = step(batches[first])?;
        if first == last {
            parts.push(Part::new(first, last, batches, AnyBatch::of(&low)));
            continue;
        }
        let high = step(batches[last])?;
        if !low.does_as(&high) {
            // The last batch that does as the first one.
            let (mut same, mut other) = (first, last);
            let mut look = |at: usize, same: &mut usize, other: &mut usize| -> Result<()> {
                if *same < at && at < *other {
                    *(if step(batches[at])?.does_as(&low) { same } else { other }) = at;
                }
                Ok(())
            };
            for at in turns.places(batches, question.seq) {
                look(at, &mut same, &mut other)?;
            }
            while other - same > 1 {
                look(same + (other - same) / 2, &mut same, &mut other)?;
            }
            turns.narrow(batches[same], batches[other], question.seq);
            open.extend([(other, last), (first, same)]);
            continue;
        }
        let middle = first + (last - first) / 2;
        let within = first + 1..last;
        let cheap = within.clone().filter(|at| question.cheap.contains(&batches[*at]));
        let check = cheap.min_by_key(|at| at.abs_diff(middle)).unwrap_or(middle);
        let stream = match AnyBatch::between(&low, batches[first], &high, batches[last]) {
            Some(stream) if !within.is_empty() && !stream.is_at(&*step(batches[check])?, batches[check]) => None,
            stream => stream,
        };
        if let Some(stream) = stream {
            parts.push(Part::new(first, last, batches, stream));
        } else {
            open.extend([(middle + 1, last), (first, middle)]);
        }
    }
    Ok(parts)
}

/// The batches that [`parts`] asks about whatever the sequence: the first, the ends of the rest, and its middle.
pub fn landmarks(batches: &[u64]) -> Vec<u64> {
    let last = batches.len().saturating_sub(1);
    let first = usize::from(batches.first() == Some(&1) && last > 0);
    let at = |index: usize| batches.get(index).copied();
    [at(0), at(first), at(first + (last - first) / 2), at(last)].into_iter().flatten().collect()
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
