//! The search itself.
//!
//! Ways are looked at from the least sacrifice on. Of each the lightest point is run first: where it does not fit, hardly any
//! other does, so the rest of the way waits until every other way has failed too. Where it fits, the points are walked from
//! the dearest to memory to the lightest, and what a cheaper recipe already makes needless is left out. A way whose weights
//! alone do not fit is left at that: nothing makes them lighter within it.

use std::borrow::Cow;
use std::cmp::Ordering;

use plimsoll_ground::{Bytes, Result};
use plimsoll_scenario::{Change, Link, Mode, Scenario};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cards::holding;
use super::cost::{Cost, Kind};
use super::recipe::{Altered, Miss, Recipe};
use super::space::{EVERY_STEP, Point, STEPS, Way, offloaded, parts, ways};
use crate::measure;
use crate::{CardMemory, DeviceLimits, Run, Verdict, card, execute_for_memory, max_batch};

/// The most recipes that are named: more is no answer.
const MOST: usize = 6;

/// Cards named where nothing fits.
pub(super) const CARDS: usize = 3;

/// Micro-batches of a step that are run to see whether it fits.
const BRIEF: u64 = 2;

/// The fewest tokens a sequence is cut to.
const SHORTEST: u64 = 64;

/// How often the sequence is doubled to see how long it could be.
const DOUBLINGS: u32 = 3;

/// What may be changed beyond the recipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// The sequence may be cut, where nothing else helps.
    pub shorter: bool,
}

/// What brings a run onto its card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Format version: 1.
    pub schema: u32,
    /// What was asked, whole.
    pub scenario: Value,
    /// Its verdict.
    pub verdict: Verdict,
    /// Its peak.
    pub process: Bytes,
    /// Load line less that.
    pub headroom: i64,
    /// The card's limits.
    pub device: DeviceLimits,
    /// Recipes that fit, the least sacrifice first; none where the run fits as it is.
    pub recipes: Vec<Recipe>,
    /// Where nothing fits: the lightest there is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nearest: Option<Miss>,
    /// How many runs it took.
    pub runs: u64,
}

/// Searches every combination of levers that keeps the data as it is.
///
/// # Errors
/// As [`Run::new`].
pub fn fit(scenario: &Scenario, allowed: Allowed) -> Result<Fit> {
    let run = Run::new(scenario)?;
    let asked = run.estimate();
    let mut answer = Fit {
        schema: 1,
        scenario: scenario.to_value(),
        verdict: asked.verdict,
        process: asked.peak.process,
        headroom: asked.headroom,
        device: asked.device.clone(),
        recipes: Vec::new(),
        nearest: None,
        runs: 1,
    };
    if asked.verdict == Verdict::Fits {
        return Ok(answer);
    }
    let mut search = Search { memory: CardMemory::new(card(scenario)?, scenario), runs: 1, lightest: None };
    let mut ways = ways(scenario);
    let mut found = search.all(&ways);
    if found.is_empty() {
        let away = offloaded(&ways);
        found = search.all(&away);
        // Of these a longer part of the sequence may fit.
        ways.extend(away);
    }
    let mut lost = Vec::new();
    if found.is_empty() && allowed.shorter {
        (found, lost) = search.shorter(&ways);
    }
    short_list(&mut found);
    for place in &found {
        answer.recipes.push(search.recipe(scenario, place, lost.iter().find(|cost| cost.0 == place.way.name))?);
    }
    if answer.recipes.is_empty() {
        answer.nearest = search.miss()?;
    }
    answer.runs = search.runs;
    Ok(answer)
}

/// A point of a way that fits.
#[derive(Clone, Debug)]
struct Found {
    /// Of how many sacrifices of the result: the way's place.
    order: usize,
    way: Way,
    point: Point,
}

struct Search {
    memory: CardMemory,
    runs: u64,
    /// The lightest that was seen and does not fit: live bytes, name and scenario.
    lightest: Option<(Bytes, String, Scenario)>,
}

/// What a run without replay says.
struct Look {
    fits: bool,
    /// Whether the weights alone are too much.
    hopeless: bool,
}

impl Search {
    fn look(&mut self, name: impl FnOnce() -> String, scenario: &Scenario) -> Look {
        self.runs += 1;
        let Ok(ledger) = execute_for_memory(&brief(scenario)) else { return Look { fits: false, hopeless: false } };
        let memory = self.memory.running(&ledger);
        let line = memory.limits.load_line.saturating_sub(memory.context);
        let (phases, peak) = measure::requested(&ledger);
        let loaded = phases.first().map_or(Bytes::ZERO, |load| load.end_requested);
        let size = |id: u32| Bytes::new(ledger.storages[id as usize].bytes);
        let fits = peak.bytes <= line && memory.fits(&ledger, size);
        if !fits && self.lightest.as_ref().is_none_or(|(least, ..)| peak.bytes < *least) {
            self.lightest = Some((peak.bytes, name(), scenario.clone()));
        }
        Look { fits, hopeless: loaded > line }
    }

    fn fits(&mut self, way: &Way, point: Point) -> bool {
        let Some(scenario) = way.at(point) else { return false };
        self.look(|| way.name(point, &scenario), &scenario).fits
    }

    /// Every point that fits and that no cheaper one makes needless.
    fn all(&mut self, ways: &[Way]) -> Vec<Found> {
        let mut found: Vec<Found> = Vec::new();
        let mut open = Vec::new();
        for (order, way) in ways.iter().enumerate() {
            if found.iter().any(|f| f.point == Point::START && f.way.trains_as_much(way)) {
                continue;
            }
            let parts = parts(&way.scenario);
            let most = parts.last().copied().unwrap_or(1);
            let lightest = Point { checkpointing: way.checkpoints(), parts: most, steps: way.steps() };
            let Some(scenario) = way.at(lightest) else { continue };
            let look = self.look(|| way.name(lightest, &scenario), &scenario);
            if look.fits {
                self.walk(order, way, &parts, lightest, &mut found);
            } else if !look.hopeless {
                open.push((order, way, parts, lightest));
            }
        }
        if found.is_empty() {
            // Nothing is left out: what is lightest alive is not always what the allocator makes least of.
            for (order, way, parts, lightest) in open {
                for point in points(&parts, lightest).filter(|point| *point != lightest) {
                    if self.fits(way, point) {
                        found.push(Found { order, way: way.clone(), point });
                    }
                }
            }
        }
        let needless = |f: &Found| {
            found.iter().any(|g| match g.order.cmp(&f.order) {
                Ordering::Less => g.point.serves_for(f.point) && g.way.trains_as_much(&f.way),
                Ordering::Equal => g.point != f.point && g.point.spares(f.point),
                Ordering::Greater => false,
            })
        };
        let kept: Vec<bool> = found.iter().map(|f| !needless(f)).collect();
        found.into_iter().zip(kept).filter_map(|(f, kept)| kept.then_some(f)).collect()
    }

    /// The points of a way whose lightest fits: with and without recomputing, as it is and with the steps that it takes to
    /// keep a larger micro-batch.
    fn walk(&mut self, order: usize, way: &Way, parts: &[u64], lightest: Point, found: &mut Vec<Found>) {
        let is_known = |found: &[Found], point: Point| {
            let stands = |f: &Found| (f.point == point || f.point.spares(point)) && f.way.trains_as_much(way);
            found.iter().any(stands)
        };
        let add = |found: &mut Vec<Found>, point: Point| {
            if !is_known(found, point) {
                found.push(Found { order, way: way.clone(), point });
            }
        };
        for checkpointing in [false, true] {
            let plain = Point { checkpointing, ..Point::START };
            if checkpointing && !lightest.checkpointing || is_known(found, plain) {
                continue;
            }
            let as_it_is = self.fewest(way, parts, plain);
            if let Some(parts) = as_it_is {
                add(found, Point { parts, ..plain });
            }
            if lightest.steps == 0 || as_it_is == Some(1) {
                continue;
            }
            let Some(parts) = self.fewest(way, parts, Point { steps: lightest.steps, ..plain }) else { continue };
            if as_it_is.is_some_and(|fewest| fewest <= parts) {
                continue;
            }
            // One of them may be enough.
            let alone = (0..STEPS.len()).map(|bit| Point { parts, steps: 1 << bit, ..plain });
            let alone = alone.filter(|point| point.steps & !lightest.steps == 0).find(|point| self.fits(way, *point));
            add(found, alone.unwrap_or(Point { parts, steps: lightest.steps, ..plain }));
        }
    }

    /// The fewest parts with which it fits: a smaller micro-batch has less alive.
    fn fewest(&mut self, way: &Way, parts: &[u64], corner: Point) -> Option<u64> {
        let (mut bad, mut good) = (0, parts.len());
        let mut fits = |at: usize| parts.get(at).is_some_and(|n| self.fits(way, Point { parts: *n, ..corner }));
        if fits(0) {
            return parts.first().copied();
        }
        if parts.len() < 2 || !fits(parts.len() - 1) {
            return None;
        }
        good -= 1;
        while good - bad > 1 {
            let middle = bad + (good - bad) / 2;
            if fits(middle) { good = middle } else { bad = middle }
        }
        parts.get(good).copied()
    }

    /// Every way at its lightest, with the longest sequence that fits; and what each lost, by its name.
    fn shorter(&mut self, ways: &[Way]) -> (Vec<Found>, Vec<(Cow<'static, str>, Cost)>) {
        let (mut found, mut lost) = (Vec::new(), Vec::new());
        let mut longest = 0;
        for (order, way) in ways.iter().enumerate() {
            let Some(whole) = way.scenario.input.seq else { break };
            let mut seq = whole / 2;
            while seq >= SHORTEST && seq > longest {
                let change = Change::Sizes { batch: way.scenario.input.batch, seq: Some(seq) };
                let Ok(scenario) = change.apply(&way.scenario) else { break };
                let cut = Way { scenario, ..way.clone() };
                let parts = parts(&cut.scenario);
                let lightest = Point {
                    checkpointing: cut.checkpoints(),
                    parts: parts.last().copied().unwrap_or(1),
                    steps: cut.steps(),
                };
                if self.fits(&cut, lightest) {
                    let words = format!("sequences of {seq} tokens instead of {whole}: what is longer is cut or split");
                    lost.push((cut.name.clone(), Cost::new(Kind::Quality, words)));
                    found.push(Found { order, way: cut, point: lightest });
                    longest = seq;
                    break;
                }
                seq /= 2;
            }
        }
        (found, lost)
    }

    fn recipe(&mut self, before: &Scenario, place: &Found, lost: Option<&(Cow<'static, str>, Cost)>) -> Result<Recipe> {
        let scenario = place.way.at(place.point).unwrap_or_else(|| place.way.scenario.clone());
        let run = Run::new(&scenario)?;
        let estimate = run.estimate();
        let mut costs = place.way.costs(place.point, &scenario);
        let mut name = place.way.name(place.point, &scenario);
        if let Some((_, cost)) = lost {
            costs.push(cost.clone());
            name.push_str(&scenario.input.seq.map(|seq| format!(", {seq} tokens")).unwrap_or_default());
        }
        self.runs += 1;
        Ok(Recipe {
            name: name.trim_start_matches(", ").to_owned(),
            changes: Altered::between(before, &scenario),
            costs,
            process: estimate.peak.process,
            headroom: estimate.headroom,
            largest_batch: largest(&scenario)?,
            longest_seq: self.longest(&scenario),
            command: Link::command(&scenario),
            scenario: scenario.to_value(),
        })
    }

    /// Doubles the sequence as long as it fits.
    fn longest(&mut self, scenario: &Scenario) -> Option<u64> {
        let mut good = scenario.input.seq?;
        if scenario.training.mode == Mode::Inference {
            return Some(good);
        }
        for _ in 0..DOUBLINGS {
            let next = Change::Sizes { batch: scenario.input.batch, seq: Some(good.saturating_mul(2)) }.apply(scenario);
            let Ok(next) = next else { break };
            if !self.look(String::new, &next).fits {
                break;
            }
            good = good.saturating_mul(2);
        }
        Some(good)
    }

    fn miss(&mut self) -> Result<Option<Miss>> {
        let Some((_, name, scenario)) = self.lightest.take() else { return Ok(None) };
        let run = Run::new(&scenario)?;
        let estimate = run.estimate();
        let process = estimate.peak.process;
        Ok(Some(Miss {
            name,
            process,
            over: process.saturating_sub(estimate.device.load_line),
            cards: holding(&scenario, CARDS)?,
            command: Link::command(&scenario),
            scenario: scenario.to_value(),
        }))
    }
}

/// The scenario with at most two micro-batches a step: the second shows all that a later one would, and the whole is only
/// run where it is named.
pub(super) fn brief(scenario: &Scenario) -> Scenario {
    let mut brief = scenario.clone();
    brief.training.accumulation = brief.training.accumulation.min(BRIEF);
    brief
}

/// The largest batch of a scenario.
fn largest(scenario: &Scenario) -> Result<u64> {
    let brief = brief(scenario);
    if brief == *scenario {
        return max_batch(scenario);
    }
    let batch = max_batch(&brief)?;
    let fits = |batch: u64| {
        Change::Sizes { batch, seq: None }
            .apply(scenario)
            .and_then(|there| Run::new(&there))
            .is_ok_and(|run| run.estimate().verdict == Verdict::Fits)
    };
    if batch > 0 && fits(batch) && !fits(batch + 1) { Ok(batch) } else { max_batch(scenario) }
}

/// Every point of a way, the lightest last.
fn points(parts: &[u64], lightest: Point) -> impl Iterator<Item = Point> {
    let checkpointing = if lightest.checkpointing { vec![true, false] } else { vec![false] };
    let corners = checkpointing.into_iter().flat_map(move |checkpointing| {
        let steps = (0..=EVERY_STEP).rev().filter(move |steps| steps & !lightest.steps == 0);
        steps.map(move |steps| (checkpointing, steps))
    });
    corners.flat_map(move |(checkpointing, steps)| {
        parts.iter().rev().map(move |&parts| Point { checkpointing, parts, steps })
    })
}

/// The best of each way, then what else there is room for; the least sacrifice first.
fn short_list(found: &mut Vec<Found>) {
    found.sort_by_key(|f| (f.order, f.point.weight(), f.point));
    let first: Vec<bool> = (0..found.len()).map(|at| at == 0 || found[at - 1].order != found[at].order).collect();
    let heads = first.iter().filter(|first| **first).count();
    let mut spare = MOST.saturating_sub(heads);
    let mut at = 0;
    found.retain(|_| {
        let keep = first[at] || {
            let room = spare > 0;
            spare = spare.saturating_sub(1);
            room
        };
        at += 1;
        keep
    });
    found.truncate(MOST);
}
