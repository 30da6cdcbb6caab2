//! The largest micro-batch that fits.
//!
//! From the second sample on, every storage of a step is an affine function of the micro-batch and the order of events
//! does not change: two traces give the sizes at any batch, and a replay of the stream says whether it fits.

use crate::scenario::limits;
use crate::{Bytes, Result, Scenario, device};

use super::measure::replay;
use super::trace::{Trace, card};
use super::{Run, Verdict};

/// The same scenario with another micro-batch.
fn with_batch(scenario: &Scenario, batch: u64) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.input.batch = batch;
    scenario
}

fn fits(scenario: &Scenario, batch: u64) -> Result<bool> {
    Ok(Run::new(&with_batch(scenario, batch))?.estimate().verdict == Verdict::Fits)
}

/// The largest micro-batch whose verdict is `fits`, everything else as in the scenario; 0 when not even one sample does.
///
/// # Errors
/// As [`Run::new`].
pub fn max_batch(scenario: &Scenario) -> Result<u64> {
    if !fits(scenario, 1)? {
        return Ok(0);
    }
    let gpu = card(scenario)?;
    let line = device::limits(gpu, scenario.device.memory, scenario.device.load_line).load_line;
    let room = line.saturating_sub(device::context(gpu).bytes);
    let (two, three) = (Trace::new(&with_batch(scenario, 2))?, Trace::new(&with_batch(scenario, 3))?);
    let affine = two.ledger.events == three.ledger.events;
    let sizes: Vec<(u64, u64)> = two
        .ledger
        .storages
        .iter()
        .zip(&three.ledger.storages)
        .map(|(a, b)| (a.bytes, b.bytes.saturating_sub(a.bytes)))
        .collect();
    let fits_at = |batch: u64| -> Result<bool> {
        if !affine {
            return fits(scenario, batch);
        }
        let size = |id: u32| {
            let (base, slope) = sizes[id as usize];
            Bytes::new(base.saturating_add(slope.saturating_mul(batch - 2)))
        };
        // With room up to the load line: the allocator may release cached segments to stay under it, but a run that
        // must do so at the line is not counted as fitting, so the reserve is checked without a limit first.
        Ok(replay(&two.ledger, size, Some(room), None).is_ok_and(|peaks| peaks.retries == 0))
    };
    let (mut good, mut bad) = (1, 2);
    while fits_at(bad)? {
        good = bad;
        if bad == limits::BATCH {
            return Ok(bad);
        }
        bad = (bad * 2).min(limits::BATCH);
    }
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits_at(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    // Confirmed by exact runs at the answer and one above.
    while good > 0 && !fits(scenario, good)? {
        good -= 1;
    }
    while good < limits::BATCH && fits(scenario, good + 1)? {
        good += 1;
    }
    Ok(good)
}
