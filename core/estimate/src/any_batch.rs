//! The event stream of a step at any micro-batch.
//!
//! For a fixed sequence every storage is an affine function of the micro-batch: `fixed + per_sample x batch`. Carrying
//! both numbers through every op would make each rule of each op say how it scales. Two traces say it without that: where
//! their streams are the same event for event, the storages pair up one to one, and two sizes make a line. Whoever goes
//! by the stream at a third batch can hold it against a trace there ([`AnyBatch::is_of`]). What kernels take for themselves
//! is not always a line; where it follows from another size, it is computed ([`Law`]).

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use plimsoll_ground::Bytes;
use plimsoll_ledger::{Law, Ledger, Rule};
use plimsoll_run::LARGEST_SUM;
use rustc_hash::FxBuildHasher;

use super::outcome::load_alike;

/// Bytes of one storage at any micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// Bytes however large the batch is.
    pub fixed: i64,
    /// Bytes for each sample.
    pub per_sample: i64,
}

impl Line {
    /// The line through two sizes; `None` where none with whole bytes goes through both, or it falls.
    pub fn through(at: u64, bytes: u64, other_at: u64, other_bytes: u64) -> Option<Self> {
        let samples = i64::try_from(other_at.checked_sub(at)?).ok().filter(|n| *n > 0)?;
        let more = i64::try_from(other_bytes.checked_sub(bytes)?).ok()?;
        if more % samples != 0 {
            return None;
        }
        let per_sample = more / samples;
        let fixed = i64::try_from(bytes).ok()?.checked_sub(per_sample.checked_mul(i64::try_from(at).ok()?)?)?;
        Some(Self { fixed, per_sample })
    }

    /// The same at every batch.
    pub fn constant(bytes: u64) -> Self {
        Self { fixed: i64::try_from(bytes).unwrap_or(i64::MAX), per_sample: 0 }
    }

    /// Its size at `batch`, which must be within [`AnyBatch::most`].
    pub const fn at(self, batch: u64) -> u64 {
        let bytes = self.fixed.saturating_add(self.per_sample.saturating_mul(batch as i64));
        if bytes > 0 { bytes as u64 } else { 0 }
    }
}

/// How the bytes of a storage follow from the micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Evenly.
    Line(Line),
    /// By a rule, from a number that grows evenly.
    Rule(Rule, Line),
}

impl Growth {
    /// Bytes at `batch`.
    pub fn at(&self, batch: u64) -> Bytes {
        match self {
            Self::Line(line) => Bytes::new(line.at(batch)),
            Self::Rule(rule, line) => Bytes::new(rule.bytes(line.at(batch))),
        }
    }

    /// What grows evenly.
    pub const fn line(&self) -> Line {
        match self {
            Self::Line(line) | Self::Rule(_, line) => *line,
        }
    }
}

/// A stream whose sizes are known for every micro-batch between two that were traced, and beyond them as long as no op
/// changes what it does.
#[derive(Debug)]
pub struct AnyBatch {
    /// A trace of it: events, phases, who made what. Its sizes are those of its own batch.
    pub ledger: Arc<Ledger>,
    /// How its storages grow: thousands of them in a few hundred ways.
    pub growths: Vec<Growth>,
    /// Of each storage, which way.
    pub ways: Arc<Vec<u32>>,
}

/// The bytes of every storage of a stream at one batch.
#[derive(Debug)]
pub struct Sizes<'a> {
    by_way: Vec<Bytes>,
    ways: &'a [u32],
}

impl Sizes<'_> {
    /// Bytes of a storage; none of one that there is not.
    #[inline]
    pub fn of(&self, id: u32) -> Bytes {
        let way = self.ways.get(id as usize).and_then(|way| self.by_way.get(*way as usize));
        way.copied().unwrap_or(Bytes::ZERO)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Bytes> {
        (0..self.ways.len() as u32).map(|id| self.of(id))
    }
}

/// Numbers what is alike: of each key the number of its way, and what `make` makes of each way; `None` where it makes nothing.
pub fn numbered<K: Copy + Eq + Hash, T>(
    keys: impl Iterator<Item = K>,
    mut make: impl FnMut(K) -> Option<T>,
) -> Option<(Vec<T>, Vec<u32>)> {
    let mut known: HashMap<K, u32, FxBuildHasher> = HashMap::default();
    let mut made = Vec::new();
    let mut number = |key: K| {
        if let Some(number) = known.get(&key) {
            return Some(*number);
        }
        let number = u32::try_from(made.len()).ok()?;
        made.push(make(key)?);
        known.insert(key, number);
        Some(number)
    };
    let numbers = keys.map(&mut number).collect::<Option<Vec<u32>>>()?;
    Some((made, numbers))
}

/// Gives the storages that have a law the ways that `rules` says, in the laws' order; `None` where it has none for one.
pub fn by_rules<T: PartialEq>(
    ledger: &Ledger,
    rules: impl Iterator<Item = Option<T>>,
    made: &mut Vec<T>,
    ways: &mut [u32],
) -> Option<()> {
    let first = made.len();
    for (law, rule) in ledger.laws.iter().zip(rules) {
        let rule = rule?;
        // There are few.
        let known = made[first..].iter().position(|known| *known == rule);
        ways[law.storage as usize] = (first + known.unwrap_or(made.len() - first)) as u32;
        if known.is_none() {
            made.push(rule);
        }
    }
    Some(())
}

/// Two optimizer steps at one batch: what is done, and how large everything is.
#[derive(Clone, Debug)]
pub struct OneBatch {
    /// A trace of it: events, phases, who made what. Its sizes need not be those of this batch.
    pub ledger: Arc<Ledger>,
    /// The bytes of every storage.
    pub sizes: Vec<u64>,
    /// What each of the ledger's laws goes by.
    pub counts: Vec<u64>,
}

impl OneBatch {
    /// As it was traced.
    pub fn of(ledger: Arc<Ledger>) -> Self {
        let sizes = ledger.storages.iter().map(|s| s.bytes).collect();
        let counts = ledger.laws.iter().map(|law| law.count).collect();
        Self { ledger, sizes, counts }
    }

    /// Whether the other does the same, whatever the sizes.
    pub fn does_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ledger, &other.ledger)
            || (same(&self.ledger, &other.ledger) && laws_alike(&self.ledger.laws, &other.ledger.laws))
    }
}

/// Whether two runs are the same event for event, with the same libraries loaded.
fn same(a: &Ledger, b: &Ledger) -> bool {
    a.storages.len() == b.storages.len() && a.phases == b.phases && a.events == b.events && load_alike(a, b)
}

/// Whether both have the same laws for the same storages.
fn laws_alike(a: &[Law], b: &[Law]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.says_as(b))
}

impl AnyBatch {
    /// Of two steps at two batches, the smaller first; `None` where they do not do the same.
    pub fn between(step: &OneBatch, at: u64, other: &OneBatch, other_at: u64) -> Option<Self> {
        if !step.does_as(other) {
            return None;
        }
        let line = |(a, b): (u64, u64)| Line::through(at, a, other_at, b);
        let both = |a: &[u64], b: &[u64]| a.iter().copied().zip(b.iter().copied()).collect::<Vec<(u64, u64)>>();
        let mut sizes = both(&step.sizes, &other.sizes);
        // What follows from another number is on no line of its own.
        step.ledger.laws.iter().for_each(|law| sizes[law.storage as usize] = (0, 0));
        let (lines, mut ways) = numbered(sizes.into_iter(), line)?;
        let mut growths: Vec<Growth> = lines.into_iter().map(Growth::Line).collect();
        let counts = both(&step.counts, &other.counts).into_iter().map(line).collect::<Option<Vec<Line>>>()?;
        let rules = step.ledger.laws.iter().zip(counts).map(|(law, line)| Some(Growth::Rule(law.rule, line)));
        by_rules(&step.ledger, rules, &mut growths, &mut ways)?;
        Some(Self { ledger: Arc::clone(&step.ledger), growths, ways: Arc::new(ways) })
    }

    /// Of one step, good for its own batch only.
    pub fn of(step: &OneBatch) -> Self {
        let constant = |bytes| Some(Growth::Line(Line::constant(bytes)));
        let (growths, ways) = numbered(step.sizes.iter().copied(), constant).unwrap_or_default();
        Self { ledger: Arc::clone(&step.ledger), growths, ways: Arc::new(ways) }
    }

    /// Whether `trace` is this stream at `batch`, to the byte.
    pub fn is_of(&self, ledger: &Ledger, batch: u64) -> bool {
        same(&self.ledger, ledger)
            && self.sizes(batch).iter().map(Bytes::get).eq(ledger.storages.iter().map(|s| s.bytes))
    }

    /// Whether `step` is this stream at `batch`, to the byte.
    pub fn is_at(&self, step: &OneBatch, batch: u64) -> bool {
        let same = Arc::ptr_eq(&self.ledger, &step.ledger) || same(&self.ledger, &step.ledger);
        same && self.sizes(batch).iter().map(Bytes::get).eq(step.sizes.iter().copied())
    }

    /// The largest batch whose sums stay far below 2^64; a trace refuses what is above.
    pub fn most(&self) -> u64 {
        let (mut fixed, mut per_sample) = (0, 0);
        for way in self.ways.iter() {
            if let Some(Growth::Line(line)) = self.growths.get(*way as usize) {
                fixed += i128::from(line.fixed).max(0);
                per_sample += i128::from(line.per_sample).max(0);
            }
        }
        let room = i128::from(LARGEST_SUM) - fixed;
        u64::try_from(room.max(0) / per_sample.max(1)).unwrap_or(u64::MAX)
    }

    /// The size of every storage at `batch`.
    pub fn sizes(&self, batch: u64) -> Sizes<'_> {
        Sizes { by_way: self.growths.iter().map(|growth| growth.at(batch)).collect(), ways: &self.ways }
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn a_line_goes_through_both_sizes() {
        let line = Line::through(2, 1024, 5, 1024 + 3 * 100).unwrap();
        assert_eq!(line, Line { fixed: 824, per_sample: 100 });
        assert_eq!((line.at(2), line.at(5), line.at(7)), (1024, 1324, 1524));
        assert_eq!(Line::through(2, 512, 3, 512), Some(Line::constant(512)));
    }

    /// Half bytes and falling sizes are no line: whoever sees them must trace.
    #[test]
    fn what_is_no_line_is_none() {
        assert_eq!(Line::through(2, 100, 4, 101), None);
        assert_eq!(Line::through(2, 100, 3, 99), None);
        assert_eq!(Line::through(3, 100, 3, 100), None);
        assert_eq!(Line::through(2, 0, 3, u64::MAX), None);
    }
}
