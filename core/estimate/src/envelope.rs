//! The peak of live memory as a function of the micro-batch: the upper envelope of lines.
//!
//! Between two events what is alive is a sum of affine sizes, so it is a line over the batch, and the peak is the highest
//! of all these lines. Of the thousands of moments of a step only a handful are ever the highest; they are kept, and the
//! peak at a batch is then read off instead of walked to.
//!
//! PyTorch rounds every storage up to 512 bytes. Where fixed part and part per sample are both multiples of that, the
//! rounded size is a line too. The others (statistics, counters) are kept apart by their lines, counted, and rounded at
//! the batch that is asked about: the answer is exact.

use std::collections::BTreeMap;

use plimsoll_ground::Bytes;

use super::any_batch::{AnyBatch, Growth, Line};
use super::measure::{ROUNDING, RequestedPeak};
use super::summit::{Summit, height, rounded, summits};

/// A moment that is the highest at some batch.
#[derive(Clone, Debug)]
struct Moment {
    /// The allocation that made it.
    event: usize,
    /// The sum of all storages whose rounded size is a line.
    line: Line,
    /// The others, with how many of each are alive.
    others: Vec<(Growth, u32)>,
}

/// A stretch of batches over which one moment is the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first of them.
    pub from: u64,
    /// The last.
    pub to: u64,
    /// Index of the allocation that makes the peak.
    pub event: usize,
    /// What another sample adds there, on the average.
    pub per_sample: Bytes,
}

/// The peak over a range of batches.
#[derive(Clone, Debug)]
pub struct Envelope {
    first: u64,
    last: u64,
    moments: Vec<Moment>,
}

impl Line {
    /// As [`Line::at`], but below nothing as well, where the line is.
    pub fn height_within(self, batch: u64) -> i64 {
        self.fixed.saturating_add(self.per_sample.saturating_mul(batch as i64))
    }

    /// The line through two heights; a level one where both are of one batch.
    pub fn between((first, low): (u64, i64), (last, high): (u64, i64)) -> Self {
        let per_sample = (high - low).checked_div((last - first) as i64).unwrap_or(0);
        Self { fixed: low - per_sample * first as i64, per_sample }
    }

    /// Without bounds, for comparing.
    fn height(self, batch: u64) -> i128 {
        i128::from(self.fixed) + i128::from(self.per_sample) * i128::from(batch)
    }

    fn plus(self, other: Self) -> Self {
        Self { fixed: self.fixed + other.fixed, per_sample: self.per_sample + other.per_sample }
    }

    fn minus(self, other: Self) -> Self {
        Self { fixed: self.fixed - other.fixed, per_sample: self.per_sample - other.per_sample }
    }
}

/// A moment that may be the highest: rounding adds at most `slack` to its line.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The allocation that makes it.
    pub event: usize,
    /// What is alive.
    pub line: Line,
    /// How much more that may be.
    pub slack: i64,
}

impl Envelope {
    /// Of `stream` from batch `first` to `last`, which is brought down to [`AnyBatch::most`].
    pub fn new(stream: &AnyBatch, first: u64, last: u64) -> Self {
        let last = last.min(stream.most()).max(first);
        let ends = |growth: &Growth| {
            let (line, slack) = height(growth, [first, last]);
            ([first, last].map(|batch| line.height_within(batch)), slack)
        };
        let heights: Vec<([i64; 2], i64)> = stream.growths.iter().map(ends).collect();
        let candidate = |Summit { event, heights: [low, high], slack }: Summit<2>| Candidate {
            event,
            line: Line::between((first, low), (last, high)),
            slack,
        };
        let candidates = summits(&stream.ledger, &stream.ways, &heights).into_iter().map(candidate).collect();
        Self::among(candidates, stream, (first, last))
    }

    /// Of a stream whose peaks are all among these, which are in the order of their events.
    pub fn among(mut candidates: Vec<Candidate>, stream: &AnyBatch, (first, last): (u64, u64)) -> Self {
        keep_highest(&mut candidates, first, last);
        Self { first, last, moments: moments(stream, &candidates) }
    }

    /// The batches it is good for.
    pub const fn range(&self) -> (u64, u64) {
        (self.first, self.last)
    }

    /// The peak at `batch`, to the byte; `batch` is brought into the range.
    pub fn at(&self, batch: u64) -> RequestedPeak {
        let batch = batch.clamp(self.first, self.last);
        let mut peak = RequestedPeak::default();
        for moment in &self.moments {
            let of = |(growth, count): &(Growth, u32)| growth.at(batch).round_up_to(ROUNDING).get() * u64::from(*count);
            let others: u64 = moment.others.iter().map(of).sum();
            let bytes = Bytes::new(moment.line.at(batch) + others);
            if bytes > peak.bytes {
                peak = RequestedPeak { bytes, event: moment.event };
            }
        }
        peak
    }

    /// The largest batch whose peak is at most `bytes`; `None` when not even the first one's is.
    pub fn largest_within(&self, bytes: Bytes) -> Option<u64> {
        if self.at(self.first).bytes > bytes {
            return None;
        }
        let (mut good, mut bad) = (self.first, self.last + 1);
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if self.at(middle).bytes <= bytes { good = middle } else { bad = middle }
        }
        Some(good)
    }

    /// Where the peak is, batch after batch: the stretches over which it stays at one moment of the step.
    pub fn stretches(&self) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        let mut from = self.first;
        while from <= self.last {
            let event = self.at(from).event;
            let (mut good, mut bad) = (from, self.last + 1);
            while bad - good > 1 {
                let middle = good + (bad - good) / 2;
                if self.at(middle).event == event { good = middle } else { bad = middle }
            }
            let next = (from + 1).min(self.last).max(good);
            let more = self.at(next).bytes.saturating_sub(self.at(from).bytes).get();
            let per_sample = more / (next - from).max(1);
            stretches.push(Stretch { from, to: good, event, per_sample: Bytes::new(per_sample) });
            from = good + 1;
        }
        stretches
    }
}

/// Drops the summits that are below the highest of a few of them at every batch of the range.
///
/// The highest of a few lines is convex and made of pieces that meet where two of them cross; a line less it is highest
/// at one of these crossings or at an end of the range. Looking there is enough.
fn keep_highest(summits: &mut Vec<Candidate>, first: u64, last: u64) {
    const FEW: u64 = 4;
    drop_dominated(summits, [first, last]);
    let mut few: Vec<Line> = Vec::new();
    for i in 0..=FEW {
        // Closer together near the first batch, where the peak moves from the optimizer to the backward.
        let at = first + (last - first).checked_shr((2 * i) as u32).unwrap_or(0).min(last - first);
        let at = if i == FEW { first } else { at };
        few.extend(summits.iter().max_by_key(|s| s.line.height(at)).map(|s| s.line));
    }
    few.sort_unstable();
    few.dedup();
    let mut looked_at = vec![first, last];
    for (i, a) in few.iter().enumerate() {
        for b in &few[..i] {
            let (rise, run) = (i128::from(a.fixed) - i128::from(b.fixed), i128::from(b.per_sample - a.per_sample));
            if run != 0 {
                let crossing = rise.div_euclid(run);
                let near = [crossing, crossing + 1].map(|at| u64::try_from(at.max(0)).unwrap_or(u64::MAX));
                looked_at.extend(near.map(|at| at.clamp(first, last)));
            }
        }
    }
    looked_at.sort_unstable();
    looked_at.dedup();
    let highest: Vec<(u64, i128)> = looked_at
        .iter()
        .filter_map(|&at| few.iter().map(|line| line.height(at)).max().map(|height| (at, height)))
        .collect();
    summits.retain(|s| highest.iter().any(|(at, height)| s.line.height(*at) + i128::from(s.slack) >= *height));
}

/// Drops those that are lower than the highest at one of these batches and grow no faster: nearly all, by two comparisons
/// each. None of them is the highest anywhere.
fn drop_dominated(summits: &mut Vec<Candidate>, batches: [u64; 2]) {
    for batch in batches {
        let Some(highest) = summits.iter().max_by_key(|s| s.line.height(batch)).map(|s| s.line) else { return };
        let grows = |s: &Candidate| s.line.per_sample > highest.per_sample;
        summits.retain(|s| s.line.fixed.saturating_add(s.slack) >= highest.fixed || grows(s));
    }
}

/// What is alive at each summit, exactly. Where something is whose size is no line, the stream is walked once more.
fn moments(stream: &AnyBatch, summits: &[Candidate]) -> Vec<Moment> {
    if summits.iter().all(|s| s.slack == 0) {
        return summits.iter().map(|s| Moment { event: s.event, line: s.line, others: Vec::new() }).collect();
    }
    let even = |growth: &Growth| match growth {
        Growth::Line(line) => rounded(*line),
        Growth::Rule(..) => None,
    };
    let evenly: Vec<Option<Line>> = stream.growths.iter().map(even).collect();
    let mut line = Line::constant(0);
    let mut others: BTreeMap<u32, u32> = BTreeMap::new();
    let mut moments = Vec::with_capacity(summits.len());
    let mut events = stream.ledger.events.iter().enumerate();
    for summit in summits {
        for (event, e) in events.by_ref() {
            let way = stream.ways[e.id() as usize];
            match (evenly[way as usize], e.is_free()) {
                (Some(size), false) => line = line.plus(size),
                (Some(size), true) => line = line.minus(size),
                (None, false) => *others.entry(way).or_default() += 1,
                (None, true) => {
                    if let Some(count) = others.get_mut(&way) {
                        *count -= 1;
                    }
                }
            }
            if event == summit.event {
                break;
            }
        }
        let others = others.iter().filter(|(_, count)| **count > 0);
        let others = others.map(|(way, count)| (stream.growths[*way as usize], *count)).collect();
        moments.push(Moment { event: summit.event, line, others });
    }
    moments
}
