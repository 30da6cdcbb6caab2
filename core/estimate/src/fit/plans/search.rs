//! The search itself: one way after the other, so that whoever asks can stop in between.
//!
//! Of each way the lightest point is run first. Where that does not fit, it says what bounds the others: what there is at every
//! micro-batch, or the live tensors of the smallest, which are never more than those of a larger one. Where it fits, the
//! largest micro-batch is sought for each corner of the way. What a cheaper corner makes needless is not run.

use std::collections::BTreeMap;

use plimsoll_catalog::Gpu;
use plimsoll_catalog::device::links;
use plimsoll_ground::{Bytes, Result};
use plimsoll_scenario::{Change, Link, Scenario};

use super::candidate::{self, Candidate};
use super::look::{Look, line};
use super::ways::{Spread, not_searched, refusal, ways};
use super::{Bound, Freedom, Plan, Plans, Rejected, Why};
use crate::fit::recipe::{Altered, Miss};
use crate::fit::search::brief;
use crate::fit::space::{Point, Way, parts};
use crate::{CardMemory, Run, Verdict, card};

/// The most plans that are named.
const MOST: usize = 6;

/// Finds every plan at once.
///
/// # Errors
/// As [`Search::new`].
pub fn plans(scenario: &Scenario, freedom: Freedom) -> Result<Plans> {
    let mut search = Search::new(scenario, freedom)?;
    while search.step() {}
    search.finish()
}

/// A search under way.
#[derive(Debug)]
pub struct Search {
    asked: Scenario,
    freedom: Freedom,
    gpu: &'static Gpu,
    memory: CardMemory,
    answer: Plans,
    ways: std::vec::IntoIter<Spread>,
    of: usize,
    candidates: Vec<Candidate>,
    /// The lightest that was seen and does not fit: its process, name and scenario.
    lightest: Option<(Bytes, String, Scenario)>,
}

impl std::fmt::Debug for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// The looks at one way.
pub(super) struct Trial<'a> {
    pub way: &'a Way,
    pub memory: &'a CardMemory,
    pub parts: Vec<u64>,
    pub known: BTreeMap<Point, Option<Look>>,
}

impl Trial<'_> {
    fn look(&mut self, point: Point) -> Option<Look> {
        let (way, memory) = (self.way, self.memory);
        *self.known.entry(point).or_insert_with(|| Look::at(&brief(&way.at(point)?), memory))
    }

    /// The fewest parts of a corner that fit, of the first `below` numbers of them. Where live tensors alone are too much they
    /// are so at every larger micro-batch; from there on the allocator is asked one by one. A single micro-batch has nothing to
    /// add gradients to: of its live tensors those of the first forward alone are known to be no fewer.
    fn fewest(&mut self, corner: Point, below: usize) -> Option<usize> {
        let line = line(self.memory);
        let at = |trial: &mut Self, index: usize| {
            let parts = trial.parts.get(index).copied()?;
            trial.look(Point { parts, ..corner })
        };
        let last = below.checked_sub(1)?;
        let lightest = at(self, last);
        if lightest.is_some_and(|look| look.first > line) {
            return None;
        }
        let live = |look: Option<Look>| look.is_some_and(|look| look.requested <= line);
        let mut first = None;
        if last > 0 && live(lightest) {
            let (mut low, mut high) = (1, last);
            while low < high {
                let middle = low + (high - low) / 2;
                if live(at(self, middle)) { high = middle } else { low = middle + 1 }
            }
            first = (low..below).find(|index| at(self, *index).is_some_and(|look| look.fits));
        }
        let of_corner = |point: &Point| Point { parts: 1, ..*point } == corner;
        let known = self.known.iter().filter(|(point, _)| of_corner(point)).filter_map(|(_, look)| *look);
        let single = known.map(|look| look.first).max().is_none_or(|first| first <= line);
        if single && at(self, 0).is_some_and(|look| look.fits) {
            return Some(0);
        }
        first
    }
}

/// The points of a way that are worth weighing: of every corner the largest micro-batch that fits, where no cheaper corner
/// has as large a one.
pub(super) fn corners(trial: &mut Trial<'_>, recomputes: bool, steps: u8) -> Vec<Point> {
    let all = trial.parts.len();
    let line = line(trial.memory);
    let last = trial.parts.last().copied().unwrap_or(1);
    let mut found: Vec<(Point, usize)> = Vec::new();
    if let Some(look) = trial.look(Point { checkpointing: recomputes, parts: last, steps: 0 })
        && !look.fits
        && (look.states > line || look.loading > line)
    {
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
        let mut outside = |index: usize| {
            let point = trial.parts.get(index).map(|parts| Point { parts: *parts, steps: 0, ..corner });
            point.and_then(|point| trial.look(point)).is_none_or(|look| look.outside > line)
        };
        if steps != 0 && (below == 0 || (outside(below - 1) && outside(0))) {
            continue;
        }
        if let Some(index) = trial.fewest(corner, below) {
            let parts = trial.parts.get(index).copied().unwrap_or(1);
            found.push((Point { parts, ..corner }, index));
        }
    }
    found.into_iter().map(|(point, _)| point).collect()
}

impl Search {
    /// Runs the scenario as it is, and lists the ways.
    ///
    /// # Errors
    /// As [`Run::new`], and a scenario of one card.
    pub fn new(scenario: &Scenario, freedom: Freedom) -> Result<Self> {
        if scenario.parallel.gpus < 2 {
            return Err(plimsoll_ground::Error::new(
                "parallel.gpus",
                "a plan spreads a training over several cards, and there is one",
                "set parallel.gpus; for one card ask what makes it fit",
            ));
        }
        let run = Run::new(scenario)?;
        let asked = run.estimate();
        let gpu = card(scenario)?;
        let links = links(gpu);
        let ways = ways(scenario, freedom)?;
        let (gpus, per_node) = (scenario.parallel.gpus, scenario.parallel.local());
        let samples = gpus.saturating_mul(scenario.input.batch).saturating_mul(scenario.training.accumulation);
        let answer = Plans {
            schema: 1,
            scenario: scenario.to_value(),
            freedom,
            verdict: asked.verdict,
            process: asked.peak.process,
            headroom: asked.headroom,
            device: asked.device.clone(),
            gpus,
            per_node,
            samples,
            tokens: scenario.input.seq.map(|seq| samples.saturating_mul(seq)),
            plans: Vec::new(),
            rejected: Vec::new(),
            not_searched: not_searched(scenario),
            nearest: None,
            joined_by: links.between.to_owned(),
            rates: links.source.to_owned(),
            combinations: 0,
            looked_at: 0,
            pruned: 0,
            runs: 1,
        };
        Ok(Self {
            asked: scenario.clone(),
            freedom,
            gpu,
            memory: CardMemory::new(gpu, scenario),
            answer,
            of: ways.len(),
            ways: ways.into_iter(),
            candidates: Vec::new(),
            lightest: None,
        })
    }

    /// How many ways have been searched, and of how many.
    pub fn progress(&self) -> (usize, usize) {
        (self.of - self.ways.len(), self.of)
    }

    /// Searches the next way; `false` where none is left.
    pub fn step(&mut self) -> bool {
        let Some(Spread { name, way }) = self.ways.next() else { return false };
        match way {
            Ok(way) => self.search(&way),
            Err(error) => {
                let words = refusal(&error);
                self.answer.rejected.push(Rejected { name, why: Why::Refused, words, scenario: None });
            }
        }
        true
    }

    fn search(&mut self, way: &Way) {
        let parts = if self.freedom.micro_batch { parts(&way.scenario) } else { vec![1] };
        let recomputes = self.freedom.recompute && way.checkpoints();
        let steps = way.steps();
        let kinds = |either: bool| if either { 2 } else { 1 };
        self.answer.combinations += parts.len() as u64 * kinds(recomputes) * kinds(steps != 0);
        let last = parts.last().copied().unwrap_or(1);
        let memory = self.memory.clone();
        let mut trial = Trial { way, memory: &memory, parts, known: BTreeMap::new() };
        let found = corners(&mut trial, recomputes, steps);
        let lightest = Point { checkpointing: recomputes, parts: last, steps: 0 };
        let known = trial.known;
        self.answer.looked_at += known.len() as u64;
        self.answer.runs += known.len() as u64;
        if found.is_empty() {
            let rejected = self.too_deep(way, lightest, &known);
            self.answer.rejected.push(rejected);
        }
        for point in found {
            let Some(scenario) = way.at(point) else { continue };
            self.answer.runs += 1;
            if let Ok(candidate) = Candidate::weigh(&self.asked, way, point, scenario, self.gpu) {
                let lightest = known.get(&lightest).copied().flatten().map_or(Bytes::ZERO, |look| look.requested);
                self.candidates.push(Candidate { lightest, ..candidate });
            }
        }
    }

    /// Why no point of a way fits.
    fn too_deep(&mut self, way: &Way, lightest: Point, known: &BTreeMap<Point, Option<Look>>) -> Rejected {
        let line = line(&self.memory);
        let name = way.name.clone().into_owned();
        let best =
            known.iter().filter_map(|(point, look)| Some((*point, (*look)?))).min_by_key(|(_, look)| look.process);
        let Some((point, look)) = best else {
            let words = "the engine does not finish it".to_owned();
            return Rejected { name, why: Why::Refused, words, scenario: None };
        };
        let scenario = way.at(point).unwrap_or_else(|| way.scenario.clone());
        if self.lightest.as_ref().is_none_or(|(least, ..)| look.process < *least) {
            let named = way.name(Point { parts: 1, ..point }, &scenario);
            let named = format!("{named}, micro-batch {} x {}", scenario.input.batch, scenario.training.accumulation);
            self.lightest = Some((look.process, named, scenario.clone()));
        }
        let bound = known.get(&lightest).copied().flatten().unwrap_or(look);
        let (why, words) = if bound.states > line {
            let states = bound.states;
            let words = format!(
                "weights, gradients and optimizer states alone take {states} a card, which has {line} for tensors"
            );
            (Why::StatesTooLarge, words)
        } else if bound.loading > line {
            let loading = bound.loading;
            (Why::LoadingTooLarge, format!("loading it alone takes {loading} a card, which has {line} for tensors"))
        } else {
            let over = look.process.saturating_sub(self.memory.limits.load_line);
            let with = if point.checkpointing { " with checkpointing" } else { "" };
            (Why::DoesNotFit, format!("over by {over} at micro-batch {}{with}", scenario.input.batch))
        };
        Rejected { name, why, words, scenario: Some(scenario.to_value()) }
    }

    /// The plans, and the reasons of all that are none.
    ///
    /// # Errors
    /// As [`Run::new`] of a scenario that was run before.
    pub fn finish(mut self) -> Result<Plans> {
        while self.step() {}
        let least = self.candidates.iter().map(|c| c.bound.hidden()).fold(f64::INFINITY, f64::min);
        let fewest = self.candidates.iter().map(|c| c.flops).min().unwrap_or(0);
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.sort_by(|a, b| a.cheaper(b, least));
        let mut named: Vec<Candidate> = Vec::new();
        for candidate in candidates {
            // Of a way its best alone: what else it could do is a step from there.
            let known = named.iter().any(|n| n.way.name == candidate.way.name)
                || self.answer.rejected.iter().any(|r| *r.name == *candidate.way.name);
            if known {
                continue;
            }
            let better = named.iter().find(|n| n.makes_needless(&candidate));
            if let Some(better) = better {
                let words = format!("fits, but costs no less than {} and holds no more", better.name());
                self.reject(&candidate, Why::Dearer, words);
            } else if named.len() >= MOST {
                let words = format!("fits, but no step is faster than {:.1} s", candidate.bound.hidden());
                self.reject(&candidate, Why::Behind, words);
            } else if let Some((candidate, plan)) = self.name(candidate, fewest)? {
                named.push(candidate);
                self.answer.plans.push(plan);
            }
        }
        if self.answer.plans.is_empty() {
            self.answer.nearest = self.miss()?;
        }
        self.answer.pruned = self.answer.combinations.saturating_sub(self.answer.looked_at);
        Ok(self.answer)
    }

    fn reject(&mut self, candidate: &Candidate, why: Why, words: String) {
        let scenario = Some(candidate.scenario.to_value());
        self.answer.rejected.push(Rejected { name: candidate.way.name.clone().into_owned(), why, words, scenario });
    }

    /// The plan of a candidate, run whole. Where the whole does not fit though its first micro-batches did, the next smaller
    /// micro-batch is taken.
    fn name(&mut self, mut candidate: Candidate, fewest: u64) -> Result<Option<(Candidate, Plan)>> {
        let parts = parts(&candidate.way.scenario);
        loop {
            let run = Run::new(&candidate.scenario)?;
            self.answer.runs += 1;
            let estimate = run.estimate();
            if estimate.verdict == Verdict::Fits {
                let (flops, traffic) = (candidate::flops(&estimate.work), estimate.work.traffic);
                let plan = Plan {
                    name: candidate.name(),
                    changes: Altered::between(&self.asked, &candidate.scenario),
                    costs: candidate.way.costs(Point { parts: 1, ..candidate.point }, &candidate.scenario),
                    command: Link::command(&candidate.scenario),
                    scenario: candidate.scenario.to_value(),
                    process: estimate.peak.process,
                    headroom: estimate.headroom,
                    flops,
                    extra_flops: flops.saturating_sub(fewest),
                    traffic,
                    bound: Bound::of(&estimate.work, self.gpu),
                };
                return Ok(Some((candidate, plan)));
            }
            let next = parts.iter().find(|parts| **parts > candidate.point.parts && self.freedom.micro_batch);
            let point = next.map(|parts| Point { parts: *parts, ..candidate.point });
            let Some((point, scenario)) = point.and_then(|point| Some((point, candidate.way.at(point)?))) else {
                let over = estimate.peak.process.saturating_sub(self.memory.limits.load_line);
                let words = format!("over by {over} at micro-batch {}", candidate.scenario.input.batch);
                self.reject(&candidate, Why::DoesNotFit, words);
                return Ok(None);
            };
            let lightest = candidate.lightest;
            candidate = Candidate::weigh(&self.asked, &candidate.way, point, scenario, self.gpu)?;
            candidate.lightest = lightest;
        }
    }

    fn miss(&mut self) -> Result<Option<Miss>> {
        let Some((_, name, scenario)) = self.lightest.take() else { return Ok(None) };
        let run = Run::new(&scenario)?;
        let process = run.estimate().peak.process;
        Ok(Some(Miss {
            name,
            process,
            over: process.saturating_sub(self.memory.limits.load_line),
            command: Link::command(&scenario),
            scenario: scenario.to_value(),
            cards: crate::fit::cards::holding(&scenario, super::super::search::CARDS)?,
        }))
    }
}

/// The scenario with so many tokens a step over all its cards, as one micro-batch.
///
/// # Errors
/// Tokens that the cards cannot share evenly, with those nearest that they can.
pub fn with_tokens(scenario: &Scenario, tokens: u64) -> Result<Scenario> {
    let error = |problem: String, hint: String| Err(plimsoll_ground::Error::new("tokens", problem, hint));
    let Some(seq) = scenario.input.seq.filter(|seq| *seq > 0) else {
        return error(
            "a sample of this model has no tokens".to_owned(),
            "say input.batch and training.accumulation".to_owned(),
        );
    };
    let share = seq.saturating_mul(scenario.parallel.gpus.max(1));
    let samples = tokens / share;
    if samples == 0 || !tokens.is_multiple_of(share) {
        let below = samples.saturating_mul(share);
        let above = samples.saturating_add(1).saturating_mul(share);
        let near = if below > 0 { format!("{below} or {above}") } else { above.to_string() };
        let problem = format!(
            "{tokens} tokens are not a whole number of sequences of {seq} on each of {} cards",
            scenario.parallel.gpus
        );
        return error(problem, format!("the nearest are {near}"));
    }
    let mut once = scenario.clone();
    once.training.accumulation = samples;
    Change::Sizes { batch: 1, seq: None }.apply(&once)
}
