//! One row of the sheet: every batch at one sequence.

use std::rc::Rc;

use crate::Result;
use crate::estimate::{Envelope, Step, Stream};

/// A run of batches that share a stream.
#[derive(Debug)]
pub struct Part {
    /// Index of its first batch.
    pub first: usize,
    /// Index of its last batch.
    pub last: usize,
    /// The stream, good from the first to the last.
    pub stream: Stream,
    /// Its peak of live memory.
    pub envelope: Envelope,
}

impl Part {
    fn new(first: usize, last: usize, batches: &[u64], stream: Stream) -> Self {
        let envelope = Envelope::new(&stream, batches[first], batches[last]);
        Self { first, last, stream, envelope }
    }
}

/// The parts of `batches` (ascending), from the steps at their ends.
///
/// Where the steps at two batches are the same event for event, every size makes a line and the step halfway lies on it,
/// so do those in between: an op that goes another way from some batch on does not come back. Elsewhere the range is halved. One sample
/// stands for itself: where a dimension is 1, reshaping copies less.
///
/// # Errors
/// The first batch that cannot be traced.
pub fn parts(batches: &[u64], step: &mut impl FnMut(u64) -> Result<Rc<Step>>) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let Some(last) = batches.len().checked_sub(1) else { return Ok(parts) };
    let mut open = if batches[0] == 1 && last > 0 { vec![(1, last), (0, 0)] } else { vec![(0, last)] };
    while let Some((first, last)) = open.pop() {
        let low = step(batches[first])?;
        if first == last {
            parts.push(Part::new(first, last, batches, Stream::of(&low)));
            continue;
        }
        let high = step(batches[last])?;
        let middle = first + (last - first) / 2;
        if !low.does_as(&high) {
            // The last batch that does as the first one.
            let (mut same, mut other) = (first, last);
            while other - same > 1 {
                let middle = same + (other - same) / 2;
                if step(batches[middle])?.does_as(&low) { same = middle } else { other = middle }
            }
            open.extend([(other, last), (first, same)]);
            continue;
        }
        let stream = match Stream::between(&low, batches[first], &high, batches[last]) {
            Some(stream) if last - first > 1 && !stream.is_at(&*step(batches[middle])?, batches[middle]) => None,
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
