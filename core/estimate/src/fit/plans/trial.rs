//! The looks at one way: which of its points are run, and which of those that fit are worth weighing.

use std::collections::BTreeMap;

use plimsoll_ground::Bytes;

use super::look::{Look, line};
use crate::CardMemory;
use crate::fit::space::{Point, Way};
use crate::work::StepWork;

/// The looks at one way.
pub struct Trial<'a> {
    pub way: &'a Way,
    pub memory: &'a CardMemory,
    pub parts: Vec<u64>,
    /// The lightest point.
    pub lightest: Point,
    /// How points begin.
    pub begun: BTreeMap<Point, Option<Look>>,
    /// Those that were run.
    pub known: BTreeMap<Point, Option<(Look, Option<StepWork>)>>,
}

impl<'a> Trial<'a> {
    pub fn new(way: &'a Way, memory: &'a CardMemory, parts: Vec<u64>, recomputes: bool) -> Self {
        let lightest = Point { checkpointing: recomputes, parts: parts.last().copied().unwrap_or(1), steps: 0 };
        Self { way, memory, parts, lightest, begun: BTreeMap::new(), known: BTreeMap::new() }
    }

    fn begin(&mut self, point: Point) -> Option<Look> {
        let (way, memory) = (self.way, self.memory);
        *self.begun.entry(point).or_insert_with(|| Look::begin(&way.at(point)?, memory))
    }

    /// Where it begins too high it is not run.
    fn look(&mut self, point: Point) -> Option<Look> {
        let begun = self.begin(point)?;
        if begun.requested > line(self.memory) {
            return Some(begun);
        }
        let (way, memory) = (self.way, self.memory);
        let run = self.known.entry(point).or_insert_with(|| Look::whole(&way.at(point)?, memory));
        run.as_ref().map(|(look, _)| *look)
    }

    fn at(&self, corner: Point, index: usize) -> Option<Point> {
        self.parts.get(index).map(|parts| Point { parts: *parts, ..corner })
    }

    /// The fewest parts of a corner that fit, of the first `below` numbers of them. Live tensors of one micro-batch are no fewer
    /// where it is larger or one of several; what the allocator makes of them is asked one by one. Live tensors of several
    /// say nothing of a single one, which has nothing to add gradients to.
    fn fewest(&mut self, corner: Point, below: usize) -> Option<usize> {
        let line = line(self.memory);
        let last = below.checked_sub(1)?;
        let mut begins = |index: usize| {
            let point = self.at(corner, index)?;
            self.begin(point).filter(|look| look.requested <= line)
        };
        begins(last)?;
        let low = lowest(0, last, |index| begins(index).is_some());
        let run = self.at(corner, low).and_then(|point| self.look(point));
        if run.is_some_and(|look| look.fits) {
            return Some(low);
        }
        // What several micro-batches take besides hardly depends on how large they are: whether the next one is worth a run.
        let begun = self.at(corner, low).and_then(|point| self.begin(point));
        let more = run.zip(begun).map_or(Bytes::ZERO, |(run, begun)| run.requested.saturating_sub(begun.requested));
        let next = self.at(corner, low + 1).filter(|_| low < last).and_then(|point| self.begin(point));
        let worth = next.is_some_and(|next| next.requested + more <= line);
        let mut look = |index: usize| self.at(corner, index).and_then(|point| self.look(point));
        if worth && look(low + 1).is_some_and(|look| look.fits) {
            return Some(low + 1);
        }
        let mut live = |index: usize| look(index).is_some_and(|look| look.requested <= line);
        if low == last || !live(last) {
            return None;
        }
        let low = lowest(low + 1, last, live);
        (low..below).find(|index| look(*index).is_some_and(|look| look.fits))
    }
}

/// The lowest index from which on `holds`, which does at `high`.
fn lowest(mut low: usize, mut high: usize, mut holds: impl FnMut(usize) -> bool) -> usize {
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// Whether none of the first `below` micro-batches of a corner would fit, whatever the optimizer's step takes. A single one is
/// bounded by itself.
fn outside(trial: &mut Trial<'_>, corner: Point, below: usize, line: Bytes) -> bool {
    let mut exceeds = |index: usize| {
        let point = trial.at(Point { steps: 0, ..corner }, index);
        point.and_then(|point| trial.look(point)).is_none_or(|look| look.outside > line)
    };
    let last = below.saturating_sub(1);
    exceeds(last) && (last == 0 || exceeds(0))
}

/// The points of a way that are worth weighing: of every corner the largest micro-batch that fits, where no cheaper corner
/// has as large a one.
pub fn corners(trial: &mut Trial<'_>, steps: u8) -> Vec<Point> {
    let all = trial.parts.len();
    let line = line(trial.memory);
    let recomputes = trial.lightest.checkpointing;
    let mut found: Vec<(Point, usize)> = Vec::new();
    if trial.begin(trial.lightest).is_some_and(|look| look.states > line || look.loading > line) {
        return Vec::new();
    }
    // Another kernel of the optimizer costs nothing of the step, recomputing a third of it.
    for (checkpointing, steps) in [(false, 0), (false, steps), (true, 0), (true, steps)] {
        let repeated = found.iter().any(|(point, _)| point.checkpointing == checkpointing && point.steps == steps);
        if (checkpointing && !recomputes) || repeated {
            continue;
        }
        let corner = Point { checkpointing, parts: 1, steps };
        let below = found.iter().map(|(_, index)| *index).min().unwrap_or(all);
        // What the optimizer's step does not add is no better with another kernel for it.
        if steps != 0 && (below == 0 || outside(trial, corner, below, line)) {
            continue;
        }
        if let Some(index) = trial.fewest(corner, below) {
            let parts = trial.parts.get(index).copied().unwrap_or(1);
            found.push((Point { parts, ..corner }, index));
        }
    }
    found.into_iter().map(|(point, _)| point).collect()
}
