//! Steps at many sequences from a few traces.
//!
//! At a fixed batch a storage's size is a polynomial of the sequence: at most its square, where attention is written
//! out. Three traces give it, two more lengths in between check it; where the checks fail (an op changes what it does, a
//! window is reached) the lengths are halved until they hold or every one is traced. Kernels pad to multiples of at
//! most 128 tokens, so only lengths that leave the same remainder share a polynomial.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_ground::Result;
use plimsoll_ledger::Ledger;
use plimsoll_scenario::Scenario;

use super::parallel;
use super::variant::with_sizes;
use crate::{OneBatch, execute_for_memory};

/// The widest padding of a sequence: flash attention's blocks of 128 queries (`flash_api.cpp`, `round_multiple`).
const PADDING: u64 = 128;

/// Fewer lengths than this are traced: a polynomial would save nothing.
const WORTH: usize = 7;

/// The pieces that all rows of a grid go by.
pub struct Pieces<'a> {
    scenario: &'a Scenario,
    /// By batch and remainder.
    pieces: BTreeMap<(u64, u64), Vec<Piece>>,
}

/// A step as a function of the sequence, between two lengths.
struct Piece {
    from: u64,
    to: u64,
    /// Sequences are counted from `from` in units of this.
    unit: u64,
    ledger: Arc<Ledger>,
    curves: Vec<Curve>,
    /// What each of the ledger's laws goes by.
    counts: Vec<Curve>,
}

/// `start + first * t + second * t (t - 1) / 2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Curve {
    start: i64,
    first: i64,
    second: i64,
}

impl<'a> Pieces<'a> {
    /// For these sequences (ascending) of a scenario, and the batches that all of them will be asked about; steps of
    /// others are asked for where a row is cut, and traced.
    pub fn new(scenario: &'a Scenario, seqs: &[u64], common: &[u64]) -> Self {
        let mut classes: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for seq in seqs {
            classes.entry(seq % PADDING).or_default().push(*seq);
        }
        classes.retain(|_, lengths| lengths.len() >= WORTH);
        let mut batches = common.to_vec();
        batches.dedup();
        let of_batch = |batch: u64| classes.iter().map(move |(class, lengths)| ((batch, *class), lengths));
        let asked: Vec<((u64, u64), &Vec<u64>)> = batches.into_iter().flat_map(of_batch).collect();
        let pieces = parallel::map(asked, |((batch, class), lengths)| {
            let mut search = Halving { steps: Steps::new(scenario), batch, pieces: Vec::new() };
            // A length that cannot be traced is refused where its own row asks for it.
            if search.find(lengths).is_err() {
                search.pieces.clear();
            }
            ((batch, class), search.pieces)
        });
        Self { scenario, pieces: pieces.into_iter().collect() }
    }

    /// The steps of one row. One that cannot be traced is an error, as of [`execute_for_memory`].
    pub fn row(&self, seq: Option<u64>) -> impl FnMut(u64) -> Result<Arc<OneBatch>> {
        let mut steps = Steps::new(self.scenario);
        move |batch| {
            let piece = seq.and_then(|seq| {
                let pieces = self.pieces.get(&(batch, seq % PADDING))?;
                Some((pieces.iter().find(|piece| piece.holds_at(seq))?, seq))
            });
            match piece {
                Some((piece, seq)) => Ok(Arc::new(piece.step(seq))),
                None => steps.traced(batch, seq),
            }
        }
    }
}

/// Steps that were traced, each once.
struct Steps<'a> {
    scenario: &'a Scenario,
    known: BTreeMap<(u64, Option<u64>), Arc<OneBatch>>,
}

impl<'a> Steps<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        Self { scenario, known: BTreeMap::new() }
    }

    fn traced(&mut self, batch: u64, seq: Option<u64>) -> Result<Arc<OneBatch>> {
        if let Some(step) = self.known.get(&(batch, seq)) {
            return Ok(Arc::clone(step));
        }
        let step = Arc::new(OneBatch::of(Arc::new(execute_for_memory(&with_sizes(self.scenario, batch, seq)?)?)));
        self.known.insert((batch, seq), Arc::clone(&step));
        Ok(step)
    }
}

/// The search for the pieces of one batch and remainder.
struct Halving<'a> {
    steps: Steps<'a>,
    batch: u64,
    pieces: Vec<Piece>,
}

impl Halving<'_> {
    fn traced(&mut self, seq: u64) -> Result<Arc<OneBatch>> {
        self.steps.traced(self.batch, Some(seq))
    }

    fn find(&mut self, lengths: &[u64]) -> Result<()> {
        if lengths.len() < WORTH {
            return Ok(());
        }
        let last = lengths.len() - 1;
        // Those in between that were traced on the way here do as well as any, if they stand apart.
        let traced = |at: &usize| self.steps.known.contains_key(&(self.batch, Some(lengths[*at])));
        let known: Vec<usize> = (1..last).filter(traced).collect();
        // So much nearer than the quarters are to each other that no two of them are the same.
        let stands_for = |at: &usize, wanted: usize| 10 * at.abs_diff(wanted) < last;
        let near = |wanted: usize| {
            let known = known.iter().copied().filter(|at| stands_for(at, wanted));
            known.min_by_key(|at| at.abs_diff(wanted)).unwrap_or(wanted)
        };
        let places = [0, near(last / 2), last, near(last / 4), near(last - last / 4)];
        let mut looked_at = Vec::with_capacity(places.len());
        for at in places {
            looked_at.push((lengths[at], self.traced(lengths[at])?));
        }
        if let Some(piece) = Piece::through(lengths, &looked_at) {
            self.pieces.push(piece);
            return Ok(());
        }
        let (short, long) = lengths.split_at(self.boundary(lengths, &mut looked_at)?);
        self.find(short)?;
        self.find(long)
    }

    /// Where `lengths` are cut: where the step begins to do something else, or in half.
    fn boundary(&mut self, lengths: &[u64], looked_at: &mut [(u64, Arc<OneBatch>)]) -> Result<usize> {
        looked_at.sort_by_key(|(length, _)| *length);
        let change = looked_at.windows(2).find_map(|pair| match pair {
            [(from, before), (to, after)] if !before.does_as(after) => Some((*from, Arc::clone(before), *to)),
            _ => None,
        });
        let Some((from, before, to)) = change else { return Ok(lengths.len() / 2) };
        let place = |length: u64| lengths.partition_point(|l| *l < length);
        let (mut same, mut other) = (place(from), place(to));
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if self.traced(lengths[middle])?.does_as(&before) { same = middle } else { other = middle }
        }
        Ok(other)
    }
}

impl Piece {
    /// Through the first three of `steps`, if it holds at the others too.
    fn through(lengths: &[u64], steps: &[(u64, Arc<OneBatch>)]) -> Option<Self> {
        let [(from, start), (middle, half), (to, end), checks @ ..] = steps else { return None };
        if checks.iter().chain([&(*middle, Arc::clone(half)), &(*to, Arc::clone(end))]).any(|(_, s)| !s.does_as(start))
        {
            return None;
        }
        let unit = lengths.iter().fold(0, |unit, length| gcd(unit, length - from));
        let count = |length: u64| (length - from) / unit.max(1);
        let curves = |of: fn(&OneBatch) -> &Vec<u64>| -> Vec<Option<Curve>> {
            let points = of(start).iter().zip(of(half)).zip(of(end));
            points.map(|((a, b), c)| Curve::through(*a, (count(*middle), *b), (count(*to), *c))).collect()
        };
        let counts = curves(|step| &step.counts).into_iter().collect::<Option<Vec<Curve>>>()?;
        let mut curves = curves(|step| &step.sizes);
        for law in &start.ledger.laws {
            // Computed from what it goes by.
            curves[law.storage as usize] = Some(Curve { start: 0, first: 0, second: 0 });
        }
        let curves = curves.into_iter().collect::<Option<Vec<Curve>>>()?;
        let ledger = Arc::clone(&start.ledger);
        let piece = Self { from: *from, to: *to, unit: unit.max(1), ledger, curves, counts };
        checks.iter().all(|(length, step)| piece.step(*length).sizes == step.sizes).then_some(piece)
    }

    fn holds_at(&self, length: u64) -> bool {
        (self.from..=self.to).contains(&length)
    }

    fn step(&self, length: u64) -> OneBatch {
        let t = ((length - self.from) / self.unit) as i64;
        let pairs = t * (t - 1) / 2;
        let size = |c: &Curve| (c.start + c.first * t + c.second * pairs).max(0) as u64;
        let mut sizes: Vec<u64> = self.curves.iter().map(size).collect();
        let counts: Vec<u64> = self.counts.iter().map(size).collect();
        for (law, count) in self.ledger.laws.iter().zip(&counts) {
            sizes[law.storage as usize] = law.bytes(*count);
        }
        OneBatch { ledger: Arc::clone(&self.ledger), sizes, counts }
    }
}

impl Curve {
    /// Through `start` at 0 and two more points; `None` where no curve with whole coefficients goes through them, or its
    /// terms are too large to be added.
    fn through(start: u64, (m, at_m): (u64, u64), (n, at_n): (u64, u64)) -> Option<Self> {
        const LARGEST: i128 = 1 << 60;
        let [start, at_m, at_n, m, n] = [start, at_m, at_n, m, n].map(i128::from);
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
        if start + first.abs() * n + second.abs() * n * n > LARGEST {
            return None;
        }
        let small = |x: i128| i64::try_from(x).ok();
        Some(Self { start: small(start)?, first: small(first)?, second: small(second)? })
    }
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::Curve;

    #[test]
    fn a_curve_goes_through_its_points() {
        let f = |t: u64| 7 + 3 * t + 5 * t * t;
        let curve = Curve::through(f(0), (4, f(4)), (9, f(9))).unwrap();
        assert_eq!(curve, Curve { start: 7, first: 8, second: 10 });
        assert_eq!(Curve::through(512, (4, 512), (9, 512)), Some(Curve { start: 512, first: 0, second: 0 }));
    }

    /// A size that stops growing, or grows in steps, is no such curve.
    #[test]
    fn what_is_no_curve_is_none_or_is_found_out() {
        assert_eq!(Curve::through(0, (4, 1), (9, 2)), None);
        let capped = |t: u64| 100 * t.min(6);
        let curve = Curve::through(capped(0), (4, capped(4)), (8, capped(8)));
        assert!(curve.is_none_or(|c| c.start + c.first * 2 + c.second != capped(2) as i64));
        assert_eq!(Curve::through(u64::MAX, (1, 2), (2, 3)), None);
    }
}
