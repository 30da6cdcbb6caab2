//! The reverse question: which cards hold a run as it is.

use plimsoll_catalog::device::{context, limits};
use plimsoll_catalog::{Gpu, gpus};
use plimsoll_ground::{Bytes, Result};
use plimsoll_scenario::{Change, Scenario, at, lever};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Run, Verdict};

/// A run on one card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Berthed {
    /// The card's id.
    pub gpu: String,
    /// Its name.
    pub name: String,
    /// Its memory, as the driver reports it.
    pub memory: Bytes,
    /// Peak of the process on it: kernels, workspaces and context are the card's own.
    pub process: Bytes,
    /// Its load line less that.
    pub headroom: i64,
    /// Whether it fits.
    pub verdict: Verdict,
}

/// Every card that runs a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cards {
    /// Format version: 1.
    pub schema: u32,
    /// What was asked, whole.
    pub scenario: Value,
    /// The cards on which it runs, tight ones too, the smallest first.
    pub cards: Vec<Berthed>,
    /// How many cards the catalog has.
    pub of: usize,
}

/// Runs a scenario on every card of the catalog.
///
/// # Errors
/// As [`Run::new`], of the card it names.
pub fn cards(scenario: &Scenario) -> Result<Cards> {
    let found = search(scenario, usize::MAX, |verdict| verdict != Verdict::DoesNotFit)?;
    Ok(Cards { schema: 1, scenario: scenario.to_value(), cards: found, of: gpus().len() })
}

/// The smallest cards on which it keeps within the load line, at most so many.
pub(super) fn holding(scenario: &Scenario, most: usize) -> Result<Vec<Berthed>> {
    search(scenario, most, |verdict| verdict == Verdict::Fits)
}

fn search(scenario: &Scenario, most: usize, wanted: impl Fn(Verdict) -> bool) -> Result<Vec<Berthed>> {
    let run = Run::new(scenario)?;
    // Weights are the same on every card: where they alone are too much, nothing needs to be run.
    let loaded = run.estimate().phases.first().map_or(Bytes::ZERO, |load| load.end_requested);
    let mut all: Vec<&Gpu> = gpus().iter().collect();
    all.sort_by(|a, b| a.memory.cmp(&b.memory).then(a.id.cmp(b.id)));
    let mut found = Vec::new();
    for gpu in all {
        if found.len() >= most {
            break;
        }
        if loaded + context(gpu).bytes > limits(gpu, None, None).capacity {
            continue;
        }
        if let Some(berthed) = on(scenario, gpu)?.filter(|berthed| wanted(berthed.verdict)) {
            found.push(berthed);
        }
    }
    Ok(found)
}

/// The run on this card; `None` where the card does not take it: no kernel for it, or a recording that was made for others.
fn on(scenario: &Scenario, gpu: &Gpu) -> Result<Option<Berthed>> {
    let Some(lever) = lever(at::device::gpu) else { return Ok(None) };
    let Ok(there) = Change::Set(lever, json!(gpu.id)).apply(scenario) else { return Ok(None) };
    let Ok(run) = Run::new(&there) else { return Ok(None) };
    let estimate = run.estimate();
    Ok(Some(Berthed {
        gpu: gpu.id.to_owned(),
        name: gpu.name.to_owned(),
        memory: gpu.memory,
        process: estimate.peak.process,
        headroom: estimate.headroom,
        verdict: estimate.verdict,
    }))
}
