//! The largest micro-batch that fits.
//!
//! Two traces give the stream at any batch, its envelope the batches that could fit at all: nothing fits whose live
//! tensors alone lie below the load line. From there down, each batch is replayed through the allocator until one fits.
//! Walking instead of halving matters: what the allocator wastes does not grow evenly with the batch, and a batch may fit
//! where a smaller one does not.

use std::sync::Arc;

use plimsoll_ground::{Bytes, Error, Result};
use plimsoll_ledger::Ledger;
use plimsoll_scenario::Scenario;
use plimsoll_scenario::limits;

use super::variant::with_batch;
use crate::{AnyBatch, CardMemory, Envelope, OneBatch, card, execute_for_memory};

/// Events that are replayed walking down, before the rest is searched by halving: about a twentieth of a second.
const PATIENCE: usize = 2_000_000;

/// How often the stream is paired anew before every batch is traced: an op that changes what it does at some batch does
/// so once.
const PAIRINGS: usize = 3;

/// Events that one search may run and replay in all. What is trained takes some hundred thousand, a generation of a hundred tokens
/// some ten million; what takes more has millions in every run.
const BUDGET: usize = 32_000_000;

/// What running costs, where replaying what was run costs one.
const RUNNING: usize = 4;

/// The key of the error of a search that is given up.
pub const NOT_SEARCHED: &str = "max_batch";

/// What is left of [`BUDGET`].
struct Budget(usize);

impl Budget {
    /// Takes what replaying a run costs, or running it.
    fn spend(&mut self, events: usize) -> Result<()> {
        self.0 = self.0.checked_sub(events).ok_or_else(|| {
            Error::new(
                NOT_SEARCHED,
                format!("the largest batch is not searched: that would be more than {BUDGET} allocations and frees"),
                "take fewer layers or a smaller training.accumulation, or estimate the batches you think of",
            )
        })?;
        Ok(())
    }
}

/// Exact runs at the batches that a search looks at.
struct Trial<'a> {
    scenario: &'a Scenario,
    memory: CardMemory,
    budget: Budget,
    /// What a run costs: how many events there are hardly depends on the batch.
    usual: usize,
}

impl Trial<'_> {
    fn run(&mut self, batch: u64) -> Result<Option<Ledger>> {
        // What cannot be paid for is not begun; how many events there are hardly depends on the batch.
        self.budget.spend(self.usual)?;
        Ok(execute_for_memory(&with_batch(self.scenario, batch)).ok())
    }

    fn fits(&mut self, batch: u64) -> Result<bool> {
        Ok(self.run(batch)?.is_some_and(|ledger| self.has_room(&ledger)))
    }

    /// Whether a run's verdict is `fits`.
    fn has_room(&self, ledger: &Ledger) -> bool {
        let memory = self.memory.running(ledger);
        memory.fits(ledger, |id| ledger.storages.get(id as usize).map_or(Bytes::ZERO, |s| Bytes::new(s.bytes)))
    }
}

/// The largest micro-batch whose verdict is `fits`, everything else as in the scenario; 0 when not even one sample does.
///
/// The answer is confirmed by exact runs there and one sample above. It is the largest of all, but where so many batches
/// lie between what surely fits and what surely does not that trying them takes longer than a glance: there every so many
/// are tried, and between two of them a few larger ones may fit.
///
/// # Errors
/// As [`crate::Run::new`], and a search that costs more than 32 million events, whose key is [`NOT_SEARCHED`].
pub fn max_batch(scenario: &Scenario) -> Result<u64> {
    // Here alone a refusal is the answer.
    let first = execute_for_memory(&with_batch(scenario, 1))?;
    let memory = CardMemory::new(card(scenario)?, scenario);
    let mut trial = Trial { scenario, memory, budget: Budget(BUDGET), usual: RUNNING * first.events.len() };
    if !trial.has_room(&first) {
        return Ok(0);
    }
    trial.budget.spend(trial.usual)?;
    drop(first);
    let mut around = 2;
    for _ in 0..PAIRINGS {
        let (Some(low), Some(high)) = (trial.run(around)?, trial.run(around + 1)?) else { break };
        let (low, high) = (OneBatch::of(Arc::new(low)), OneBatch::of(Arc::new(high)));
        let Some(stream) = AnyBatch::between(&low, around, &high, around + 1) else { break };
        drop((low, high));
        if stream.growths.iter().all(|growth| growth.line().per_sample == 0) {
            // A graph: there is one, and the batch says nothing.
            return Ok(1);
        }
        let answer = search(&stream, &mut trial)?;
        let Some(run) = trial.run(answer)? else { break };
        // One sample is no pair's business: there whole dimensions vanish, and it is known to fit.
        if answer == 1 || stream.is_of(&run, answer) {
            let fits = trial.has_room(&run);
            drop((run, stream));
            let above = answer < limits::BATCH && trial.fits(answer + 1)?;
            if fits && !above {
                return Ok(answer);
            }
            break;
        }
        around = answer;
    }
    by_runs(&mut trial, around)
}

/// The largest batch at which this stream fits; 1 when none above does.
fn search(stream: &AnyBatch, trial: &mut Trial<'_>) -> Result<u64> {
    let memory = trial.memory.running(&stream.ledger);
    let line = memory.limits.load_line.saturating_sub(memory.context);
    let envelope = Envelope::new(stream, 2, limits::BATCH);
    let Some(top) = envelope.largest_within(line) else { return Ok(1) };
    let events = stream.ledger.events.len();
    let mut fits = |batch: u64| {
        trial.budget.spend(events)?;
        let sizes = stream.sizes(batch);
        Ok(memory.fits(&stream.ledger, |id| sizes.of(id)))
    };
    // In strides where there are too many for each, then one by one from the stride that fails; what is left of that is halved.
    let tries = (PATIENCE / events.max(1) / 2).max(2) as u64;
    let stride = (top / tries).max(1);
    let mut bad = top + 1;
    let mut good = top;
    while good > 1 && !fits(good)? {
        (bad, good) = (good, good.saturating_sub(stride).max(1));
    }
    let bottom = bad.saturating_sub(tries).max(good);
    for batch in (bottom + 1..bad).rev() {
        if fits(batch)? {
            return Ok(batch);
        }
    }
    between(good, bottom + 1, fits)
}

/// Without a stream to go by: every batch that is looked at is run, from `near` on, in steps that grow.
fn by_runs(trial: &mut Trial<'_>, near: u64) -> Result<u64> {
    let near = near.clamp(1, limits::BATCH);
    let (mut good, mut bad) = (near, near);
    let mut step = 1;
    if near == 1 || trial.fits(near)? {
        loop {
            if good == limits::BATCH {
                return Ok(good);
            }
            bad = good.saturating_add(step).min(limits::BATCH);
            if !trial.fits(bad)? {
                break;
            }
            (good, step) = (bad, step * 2);
        }
    } else {
        // One sample fits.
        loop {
            good = bad.saturating_sub(step).max(1);
            if good == 1 || trial.fits(good)? {
                break;
            }
            (bad, step) = (good, step * 2);
        }
    }
    between(good, bad, |batch| trial.fits(batch))
}

/// Halves what lies between a batch that fits and one that does not.
fn between(mut good: u64, mut bad: u64, mut fits: impl FnMut(u64) -> Result<bool>) -> Result<u64> {
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle)? { good = middle } else { bad = middle }
    }
    Ok(good)
}
