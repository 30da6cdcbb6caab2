//! The answer: peaks, what fills them, phase by phase, and the verdict.

mod types;

pub use types::{
    Category, DeviceLimits, Estimate, Holding, Parameters, Peak, PeakBreakdown, Phase, PhaseName, Timeline,
    TimelinePoint, Verdict,
};

use crate::{Error, Result, Scenario};

/// A scenario that has been run: its estimate, and everything one may ask about any moment of it.
#[derive(Debug)]
pub struct Run {
    estimate: Estimate,
}

impl Run {
    /// Executes two optimizer steps. `estimate().max_batch` stays `None`: see [`max_batch`].
    ///
    /// # Errors
    /// A key the engine does not estimate yet, an unsupported `model_type`, sizes that contradict one another.
    pub fn new(_scenario: &Scenario) -> Result<Self> {
        Err(Error::new("scenario", "the engine is being built", "come back in a moment"))
    }

    /// The estimate, without `max_batch`.
    pub fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    /// Live memory over both steps in at most `max_points` points (the peak of every phase is always among them).
    pub fn timeline(&self, _max_points: usize) -> Timeline {
        Timeline { points: Vec::new(), peak: 0 }
    }

    /// What is alive after `event` events of the stream, largest group first. The index of a
    /// [`TimelinePoint::event`]; layers are grouped (`model.layers.*.mlp`).
    pub fn alive_at(&self, _event: u32) -> Vec<Holding> {
        Vec::new()
    }
}

/// Runs a scenario and searches the largest micro-batch that fits.
///
/// # Errors
/// As [`Run::new`].
pub fn estimate(scenario: &Scenario) -> Result<Estimate> {
    let mut estimate = Run::new(scenario)?.estimate;
    estimate.max_batch = Some(max_batch(scenario)?);
    Ok(estimate)
}

/// The largest micro-batch whose verdict is `fits`, everything else as in the scenario; 0 when not even one sample does.
///
/// # Errors
/// As [`Run::new`].
pub fn max_batch(scenario: &Scenario) -> Result<u64> {
    Run::new(scenario).map(|_| 0)
}
