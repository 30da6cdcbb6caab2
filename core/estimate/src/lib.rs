//! The answer: peaks, what fills them, phase by phase, and the verdict.

#![forbid(unsafe_code)]

mod any_batch;
mod attribution;
mod envelope;
mod explain;
pub mod fit;
mod measure;
mod notes;
mod outcome;
mod phase_peak;
mod ranks;
mod reading;
mod run;
pub mod single;
pub mod solve;
#[cfg(test)]
mod tests;
mod types;
mod work;

pub use crate::solve::max_batch;
pub use any_batch::{AnyBatch, Line, OneBatch};
pub use attribution::{Beyond, Explanation, Layer};
pub use envelope::{Envelope, Stretch};
pub use measure::RequestedPeak;
pub(crate) use measure::largest_allocated;
pub use outcome::{CardMemory, Outcome};
pub use phase_peak::{PHASE_ORDER, PhasePeak, Which};
pub use plimsoll_catalog::device::DeviceLimits;
pub use plimsoll_ledger::{Parameters, PhaseName};
pub use plimsoll_run::{card, execute, execute_for_memory};
pub use ranks::{Communicator, Role};
pub use reading::{LedgerPeak, Reading, Summary};
pub use run::Run;
pub use types::{Category, Estimate, Holding, Peak, PeakBreakdown, Phase, Timeline, TimelinePoint, Verdict};
pub use work::{PhaseWork, StepWork};

use plimsoll_ground::Result;
use plimsoll_scenario::Scenario;

/// Runs a scenario and searches the largest micro-batch that fits.
///
/// # Errors
/// As [`Run::new`].
pub fn estimate(scenario: &Scenario) -> Result<Estimate> {
    let mut estimate = Run::new(scenario)?.into_estimate();
    estimate.max_batch = Some(max_batch(scenario)?);
    Ok(estimate)
}
