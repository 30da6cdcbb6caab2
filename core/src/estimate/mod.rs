//! The answer: peaks, what fills them, phase by phase, and the verdict.

mod attribution;
mod envelope;
mod explain;
mod measure;
mod notes;
mod outcome;
mod run;
mod stream;
#[cfg(test)]
mod tests;
mod trace;
mod types;
mod uneven;

pub use crate::solve::max_batch;
pub use attribution::{Beyond, Explanation, Layer};
pub use envelope::{Envelope, Stretch};
pub use measure::RequestedPeak;
pub(crate) use measure::largest_allocated;
pub use outcome::{Berth, Outcome};
pub use run::Run;
pub use stream::{Line, Step, Stream};
pub use trace::{Trace, card};
pub use types::{
    Category, DeviceLimits, Estimate, Holding, Parameters, Peak, PeakBreakdown, Phase, PhaseName, Timeline,
    TimelinePoint, Verdict,
};
pub use uneven::Uneven;

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
