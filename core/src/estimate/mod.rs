//! The answer: peaks, what fills them, phase by phase, and the verdict.

mod explain;
mod largest;
mod measure;
mod notes;
mod run;
#[cfg(test)]
mod tests;
mod trace;
mod types;

pub use largest::max_batch;
pub use run::Run;
pub use trace::Trace;
pub use types::{
    Category, DeviceLimits, Estimate, Holding, Parameters, Peak, PeakBreakdown, Phase, PhaseName, Timeline,
    TimelinePoint, Verdict,
};

use crate::{Result, Scenario};

/// Runs a scenario and searches the largest micro-batch that fits.
///
/// # Errors
/// As [`Run::new`].
pub fn estimate(scenario: &Scenario) -> Result<Estimate> {
    let mut estimate = Run::new(scenario)?.into_estimate();
    estimate.max_batch = Some(max_batch(scenario)?);
    Ok(estimate)
}
