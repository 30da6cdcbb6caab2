//! The search itself: one way after the other, so that whoever asks can stop in between.
//!
//! Of each way the lightest point is begun first: what is there at every micro-batch may be too much already. Then the largest
//! micro-batch that fits is sought for each corner of the way; what a cheaper corner makes needless is not run.

use plimsoll_catalog::Gpu;
use plimsoll_catalog::device::links;
use plimsoll_ground::{Bytes, Result};
use plimsoll_scenario::{Link, Scenario};

use super::bound::seconds;
use super::candidate::{self, Candidate};
use super::look::{Look, line, shown};
use super::trial::{Trial, corners};
use super::ways::{Spread, not_searched, refusal, ways};
use super::{Bound, Freedom, Plan, Plans, Rejected, Why};
use crate::fit::recipe::{Altered, Miss};
use crate::fit::space::{FUSED_OPTIMIZER, Point, Way, parts};
use crate::work::StepWork;
use crate::{CardMemory, Run, Verdict, card, execute, execute_for_memory, measure};

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
    /// The lightest that was seen and does not fit: its live bytes, name and scenario.
    lightest: Option<(Bytes, String, Scenario)>,
}

impl std::fmt::Debug for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
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
        let steps = way.steps() & FUSED_OPTIMIZER;
        let kinds = |either: bool| if either { 2 } else { 1 };
        self.answer.combinations += parts.len() as u64 * kinds(recomputes) * kinds(steps != 0);
        let memory = self.memory.clone();
        let mut trial = Trial::new(way, &memory, parts, recomputes);
        let found = corners(&mut trial, steps);
        self.answer.looked_at += trial.begun.len() as u64;
        self.answer.runs += (trial.begun.len() + trial.known.len()) as u64;
        let lightest = trial.begun.get(&trial.lightest).copied().flatten();
        if found.is_empty() {
            let rejected = self.too_deep(&trial, lightest);
            self.answer.rejected.push(rejected);
        }
        for point in found {
            let work = trial.known.get(&point).and_then(|run| run.as_ref()?.1.as_ref());
            if let (Some(scenario), Some(work)) = (way.at(point), work) {
                let candidate = Candidate::new(&self.asked, (way, point), scenario, work, self.gpu);
                let lightest = lightest.map_or(Bytes::ZERO, |look| look.requested);
                self.candidates.push(Candidate { lightest, ..candidate });
            }
        }
    }

    /// Why no point of a way fits.
    fn too_deep(&mut self, trial: &Trial<'_>, lightest: Option<Look>) -> Rejected {
        let (way, line) = (trial.way, line(&self.memory));
        let name = way.name.clone().into_owned();
        let begun = trial.begun.iter().filter(|(point, _)| !trial.known.contains_key(point));
        let begun = begun.filter_map(|(point, look)| Some((*point, (*look)?)));
        let run = trial.known.iter().filter_map(|(point, run)| Some((*point, run.as_ref()?.0)));
        let Some((point, look)) = begun.chain(run).min_by_key(|(_, look)| look.requested) else {
            let words = "the engine does not finish it".to_owned();
            return Rejected { name, why: Why::Refused, words, scenario: None };
        };
        let scenario = way.at(point).unwrap_or_else(|| way.scenario.clone());
        if self.lightest.as_ref().is_none_or(|(least, ..)| look.requested < *least) {
            let named = way.name(Point { parts: 1, ..point }, &scenario);
            let named = format!("{named}, micro-batch {} x {}", scenario.input.batch, scenario.training.accumulation);
            self.lightest = Some((look.requested, named, scenario.clone()));
        }
        let bound = lightest.unwrap_or(look);
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
            self.answer.runs += 1;
            let over = self.over(&scenario).unwrap_or_else(|| look.requested.saturating_sub(line));
            let with = if point.checkpointing { " with checkpointing" } else { "" };
            (Why::DoesNotFit, format!("over by {over} at micro-batch {}{with}", scenario.input.batch))
        };
        Rejected { name, why, words, scenario: Some(scenario.to_value()) }
    }

    /// By how much a run exceeds the load line.
    fn over(&self, scenario: &Scenario) -> Option<Bytes> {
        let ledger = execute_for_memory(&shown(scenario)).ok()?;
        let size = |id: u32| Bytes::new(ledger.storages[id as usize].bytes);
        let peak = measure::requested(&ledger).1.bytes;
        let process = self.memory.running(&ledger).outcome(&ledger, size, peak, None).process;
        Some(process.saturating_sub(self.memory.limits.load_line))
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
                let named = named.iter().map(|n| n.bound.hidden()).fold(0.0, f64::max);
                let words = format!(
                    "fits, but no step is faster than {}; of the plans above {} at most",
                    candidate.bound.in_words(),
                    seconds(named)
                );
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
            let work =
                StepWork::of_longer(&execute(&shown(&scenario))?, &scenario.parallel, scenario.training.accumulation);
            let next = Candidate::new(&self.asked, (&candidate.way, point), scenario, &work, self.gpu);
            candidate = Candidate { lightest: candidate.lightest, ..next };
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
