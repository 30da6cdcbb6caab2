//! A step at any batch and sequence, from a few traces.
//!
//! At a fixed sequence a storage's size is an affine function of the batch, and at a fixed batch a polynomial of the
//! sequence: at most its square, where attention is written out. So both coefficients over the batch are such polynomials,
//! and two batches at each of three lengths give them.

use std::sync::Arc;

use plimsoll_ledger::{Ledger, Rule};

use crate::any_batch::{by_rules, numbered};
use crate::envelope::Candidate;
use crate::measure::ROUNDING;
use crate::summit::{RAGGED, Summit, bound, rounded, summits};
use crate::{AnyBatch, Growth, Line, OneBatch};

/// Steps at one length.
pub struct Sample<'a> {
    /// The length.
    pub seq: u64,
    /// A batch, and the step there.
    pub low: (u64, &'a OneBatch),
    /// A larger batch; the same one where that is all there is.
    pub high: (u64, &'a OneBatch),
}

/// A step as a function of batch and sequence.
#[derive(Debug)]
pub struct Surface {
    ledger: Arc<Ledger>,
    /// The sequence that others, shorter ones too, are counted from in units of the next.
    from: u64,
    unit: u64,
    /// How storages grow.
    slopes: Vec<(Option<Rule>, Slope)>,
    /// Of each storage, which way.
    ways: Arc<Vec<u32>>,
}

/// An affine function of the batch, whose coefficients are polynomials of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slope {
    fixed: Curve,
    per_sample: Curve,
}

/// `start + first * t + second * t (t - 1) / 2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Curve {
    start: i64,
    first: i64,
    second: i64,
}

/// What makes a slope: the size at both batches of three lengths.
type Points = [[u64; 2]; 3];

impl Surface {
    /// Through steps that do the same, at three lengths, ascending; any other length differs from the first by a whole
    /// number of units. `None` where some storage's sizes are no such function.
    pub fn through(samples: &[Sample<'_>; 3], unit: u64) -> Option<Self> {
        let from = samples[0].seq;
        let unit = unit.max(1);
        let found = Found {
            batches: samples.each_ref().map(|s| [s.low.0, s.high.0]),
            lengths: samples.each_ref().map(|s| s.seq.saturating_sub(from) / unit),
        };
        let points = |of: fn(&OneBatch) -> &[u64]| {
            let all = samples.each_ref().map(|s| [of(s.low.1), of(s.high.1)]);
            let fewest = all.as_flattened().iter().map(|sizes| sizes.len()).min().unwrap_or(0);
            (0..fewest).map(move |at| all.map(|pair| pair.map(|sizes| sizes[at]))).collect::<Vec<Points>>()
        };
        let ledger = Arc::clone(&samples[0].low.1.ledger);
        let mut sizes = points(|step| &step.sizes);
        // What follows from another number is on no surface of its own.
        ledger.laws.iter().for_each(|law| sizes[law.storage as usize] = Points::default());
        let (slopes, mut ways) = numbered(sizes.into_iter(), |points| Some((None, found.slope(points)?)))?;
        let mut slopes: Vec<(Option<Rule>, Slope)> = slopes;
        let counts = points(|step| &step.counts);
        let rules = ledger.laws.iter().zip(counts).map(|(law, points)| Some((Some(law.rule), found.slope(points)?)));
        by_rules(&ledger, rules, &mut slopes, &mut ways)?;
        Some(Self { ledger, from, unit, slopes, ways: Arc::new(ways) })
    }

    /// At one of its lengths, for every batch.
    pub fn at(&self, seq: u64) -> AnyBatch {
        let t = (seq as i64 - self.from as i64) / self.unit as i64;
        let growth = |(rule, slope): &(Option<Rule>, Slope)| {
            let line = slope.at(t);
            rule.map_or(Growth::Line(line), |rule| Growth::Rule(rule, line))
        };
        let growths = self.slopes.iter().map(growth).collect();
        AnyBatch { ledger: Arc::clone(&self.ledger), growths, ways: Arc::clone(&self.ways) }
    }
}

/// What may be the highest of a surface, somewhere between two batches and two sequences.
#[derive(Debug)]
pub struct Peaks {
    batches: [u64; 2],
    /// The shorter length, and how many units the other one is longer.
    from: u64,
    unit: u64,
    units: u64,
    /// At the shorter length and the longer one with the smaller batch, and the same with the larger.
    summits: Vec<Summit<4>>,
}

impl Surface {
    /// What may be the highest between these batches and these two of its lengths; `None` where sizes bend with the sequence, or
    /// are too large to be added.
    pub fn peaks(&self, batches: [u64; 2], seqs: [u64; 2]) -> Option<Peaks> {
        let rows = seqs.map(|seq| self.at(seq));
        let bends = self.slopes.iter().any(|(_, slope)| !slope.is_straight());
        if bends || rows.iter().any(|row| row.most() < batches[1]) {
            return None;
        }
        let of_way = |(way, (rule, slope)): (usize, &(Option<Rule>, Slope))| {
            let [short, long] = rows.each_ref().map(|row| row.growths[way]);
            let even = rule.is_none() && slope.is_even();
            // Beyond the band a line may fall below nothing: it must stay the same line there.
            let line = |growth: Growth| match (even, rule) {
                (true, _) => rounded(growth.line()).unwrap_or(growth.line()),
                (false, None) => growth.line(),
                (false, Some(_)) => Line::constant(0),
            };
            let [low, high] = batches.map(|batch| [short, long].map(|growth| line(growth).height_within(batch)));
            let slack = match (even, rule) {
                (true, _) => 0,
                (false, None) => RAGGED,
                (false, Some(_)) => bound(&short, batches).max(bound(&long, batches)),
            };
            ([low[0], low[1], high[0], high[1]], slack)
        };
        let heights: Vec<([i64; 4], i64)> = self.slopes.iter().enumerate().map(of_way).collect();
        let units = seqs[1].saturating_sub(seqs[0]) / self.unit;
        let summits = summits(&self.ledger, &self.ways, &heights);
        Some(Peaks { batches, from: seqs[0], unit: self.unit, units, summits })
    }
}

impl Peaks {
    /// What may be the highest at a length between the two.
    pub fn at(&self, seq: u64) -> Vec<Candidate> {
        let t = (seq.saturating_sub(self.from) / self.unit) as i64;
        let along = |from: i64, to: i64| from + (to - from).checked_div(self.units as i64).unwrap_or(0) * t;
        let [first, last] = self.batches;
        let candidate = |summit: &Summit<4>| {
            let [a, b, c, d] = summit.heights;
            let line = Line::between((first, along(a, b)), (last, along(c, d)));
            Candidate { event: summit.event, line, slack: summit.slack }
        };
        self.summits.iter().map(candidate).collect()
    }
}

/// How slopes are found.
struct Found {
    /// Of each length, the two batches.
    batches: [[u64; 2]; 3],
    /// The lengths, in units from the first.
    lengths: [u64; 3],
}

impl Found {
    fn slope(&self, points: Points) -> Option<Slope> {
        let mut lines = [Line::constant(0); 3];
        for ((line, [low, high]), [at_low, at_high]) in lines.iter_mut().zip(self.batches).zip(points) {
            *line = if low == high { Line::constant(at_low) } else { Line::through(low, at_low, high, at_high)? };
        }
        let curve = |of: fn(&Line) -> i64| {
            let [start, middle, end] = lines.each_ref().map(of);
            let [_, m, n] = self.lengths;
            Curve::through(start, (m, middle), (n, end))
        };
        Some(Slope { fixed: curve(|line| line.fixed)?, per_sample: curve(|line| line.per_sample)? })
    }
}

impl Slope {
    /// Whether it is affine in the sequence as well.
    const fn is_straight(&self) -> bool {
        self.fixed.second == 0 && self.per_sample.second == 0
    }

    /// Whether a straight one stays so when sizes are rounded up to 512 bytes.
    fn is_even(&self) -> bool {
        let Self { fixed, per_sample } = self;
        let grows = [fixed.first, per_sample.start, per_sample.first];
        let whole = |term: i64| term % ROUNDING.get() as i64 == 0;
        grows == [0; 3] || whole(fixed.start) && grows.into_iter().all(whole)
    }

    fn at(&self, t: i64) -> Line {
        Line { fixed: self.fixed.at(t), per_sample: self.per_sample.at(t) }
    }
}

impl Curve {
    /// Through `start` at 0 and two more points; `None` where no curve with whole coefficients goes through them, or its
    /// terms are too large to be added.
    fn through(start: i64, (m, at_m): (u64, i64), (n, at_n): (u64, i64)) -> Option<Self> {
        const LARGEST: i128 = 1 << 60;
        let [m, n] = [m, n].map(i128::from);
        let [start, at_m, at_n] = [start, at_m, at_n].map(i128::from);
        // at_m - start = first m + second m (m - 1) / 2, and the same for n.
        let (rise_m, rise_n) = (at_m - start, at_n - start);
        let scale = m * n * (n - m);
        if m == 0 || scale == 0 {
            return None;
        }
        let second = 2 * (rise_n * m - rise_m * n);
        if second % scale != 0 {
            return None;
        }
        let second = second / scale;
        let first = 2 * rise_n - second * n * (n - 1);
        if first % (2 * n) != 0 {
            return None;
        }
        let first = first / (2 * n);
        if start.abs() + first.abs() * n + second.abs() * n * n > LARGEST {
            return None;
        }
        let small = |x: i128| i64::try_from(x).ok();
        Some(Self { start: small(start)?, first: small(first)?, second: small(second)? })
    }

    const fn at(self, t: i64) -> i64 {
        self.start + self.first * t + self.second * (t * (t - 1) / 2)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_ledger::{Event, Ledger};

    use super::{Curve, Slope, Surface};
    use crate::Growth;

    /// A band's corner may lie beyond the band, where a line is below nothing: between corners it is the line of its row all the same.
    #[test]
    fn what_may_be_the_highest_is_on_the_line_of_its_row() {
        let curve = |start, first| Curve { start, first, second: 0 };
        let slope = Slope { fixed: curve(-1024, 0), per_sample: curve(512, 512) };
        let ledger = Arc::new(Ledger { events: vec![Event::alloc(0)], ..Ledger::default() });
        let surface = Surface { ledger, from: 256, unit: 128, slopes: vec![(None, slope)], ways: Arc::new(vec![0]) };
        let peaks = surface.peaks([1, 4], [128, 640]).unwrap();
        for seq in [128, 256, 384, 640] {
            let [candidate] = peaks.at(seq)[..] else { panic!("{:?}", peaks.at(seq)) };
            assert_eq!(surface.at(seq).growths, [Growth::Line(candidate.line)], "{seq}");
            assert_eq!(candidate.slack, 0);
        }
    }

    #[test]
    fn a_curve_goes_through_its_points() {
        let f = |t: i64| 7 + 3 * t + 5 * t * t;
        let curve = Curve::through(f(0), (4, f(4)), (9, f(9))).unwrap();
        assert_eq!(curve, Curve { start: 7, first: 8, second: 10 });
        assert!((0..20).all(|t| curve.at(t) == f(t)));
        assert_eq!(Curve::through(512, (4, 512), (9, 512)), Some(Curve { start: 512, first: 0, second: 0 }));
    }

    /// A size that stops growing, or grows in steps, is no such curve.
    #[test]
    fn what_is_no_curve_is_none_or_is_found_out() {
        assert_eq!(Curve::through(0, (4, 1), (9, 2)), None);
        let capped = |t: i64| 100 * t.min(6);
        let curve = Curve::through(capped(0), (4, capped(4)), (8, capped(8)));
        assert!(curve.is_none_or(|c| c.at(2) != capped(2)));
        assert_eq!(Curve::through(i64::MAX, (1, 2), (2, 3)), None);
    }
}
