//! The largest micro-batch that fits.
//!
//! Two traces give the stream at any batch, its envelope the batches that could fit at all: nothing fits whose live
//! tensors alone lie below the load line. From there down, each batch is replayed through the allocator until one fits.
//! Walking instead of halving matters: what the allocator wastes does not grow evenly with the batch, and a batch may fit
//! where a smaller one does not.

use std::sync::Arc;

use plimsoll_ground::Result;
use plimsoll_scenario::Scenario;
use plimsoll_scenario::limits;

use super::variant::with_batch;
use crate::{AnyBatch, CardMemory, Envelope, OneBatch, Run, Verdict, card, execute_for_memory};

/// Events that are replayed walking down, before the rest is searched by halving: about a twentieth of a second.
const PATIENCE: usize = 2_000_000;

/// How often the stream is paired anew before every batch is traced: an op that changes what it does at some batch does
/// so once.
const PAIRINGS: usize = 3;

/// The largest micro-batch whose verdict is `fits`, everything else as in the scenario; 0 when not even one sample does.
///
/// The answer is confirmed by exact runs there and one sample above. It is the largest of all, but where so many batches
/// lie between what surely fits and what surely does not that trying them takes longer than a glance: there it is found
/// by halving, and larger ones may fit beyond some that do not.
///
/// # Errors
/// As [`Run::new`].
pub fn max_batch(scenario: &Scenario) -> Result<u64> {
    if !fits(&Run::new(&with_batch(scenario, 1))?) {
        return Ok(0);
    }
    let memory = CardMemory::new(card(scenario)?, scenario);
    let step =
        |batch: u64| execute_for_memory(&with_batch(scenario, batch)).map(|ledger| OneBatch::of(Arc::new(ledger)));
    let mut around = 2;
    for _ in 0..PAIRINGS {
        let (Ok(low), Ok(high)) = (step(around), step(around + 1)) else { break };
        let Some(stream) = AnyBatch::between(&low, around, &high, around + 1) else { break };
        if stream.lines.iter().all(|line| line.per_sample == 0) {
            // A graph: there is one, and the batch says nothing.
            return Ok(1);
        }
        let answer = search(&stream, &memory);
        let Ok(run) = Run::new(&with_batch(scenario, answer)) else { break };
        // One sample is no pair's business: there whole dimensions vanish, and it is known to fit.
        if answer == 1 || stream.is_of(run.ledger(), answer) {
            let above =
                answer < limits::BATCH && Run::new(&with_batch(scenario, answer + 1)).is_ok_and(|run| fits(&run));
            if fits(&run) && !above {
                return Ok(answer);
            }
            break;
        }
        around = answer;
    }
    by_runs(scenario)
}

fn fits(run: &Run) -> bool {
    run.estimate().verdict == Verdict::Fits
}

/// The largest batch at which this stream fits; 1 when none above does.
fn search(stream: &AnyBatch, memory: &CardMemory) -> u64 {
    let line = memory.limits.load_line.saturating_sub(memory.context);
    let envelope = Envelope::new(stream, 2, limits::BATCH);
    let Some(top) = envelope.largest_within(line) else { return 1 };
    let fits = |batch: u64| {
        let sizes = stream.sizes(batch);
        memory.fits(&stream.ledger, |id| sizes[id as usize])
    };
    let tries = PATIENCE / stream.ledger.events.len().max(1);
    let bottom = top.saturating_sub(tries as u64).max(1);
    if let Some(batch) = (bottom + 1..=top).rev().find(|&batch| fits(batch)) {
        return batch;
    }
    if bottom == 1 {
        return 1;
    }
    let (mut good, mut bad) = (1, bottom + 1);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) { good = middle } else { bad = middle }
    }
    good
}

/// Without a stream to go by: every batch that is looked at is run.
fn by_runs(scenario: &Scenario) -> Result<u64> {
    let fits = |batch: u64| Run::new(&with_batch(scenario, batch)).is_ok_and(|run| fits(&run));
    let (mut good, mut bad) = (1, 2);
    while fits(bad) {
        good = bad;
        if bad == limits::BATCH {
            return Ok(bad);
        }
        bad = (bad * 2).min(limits::BATCH);
    }
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) { good = middle } else { bad = middle }
    }
    Ok(good)
}
