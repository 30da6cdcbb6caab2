//! The answer: peaks, what fills them, phase by phase, and the verdict.

#![forbid(unsafe_code)]

mod against;
mod any_batch;
mod attribution;
mod compiled;
mod convolutions;
mod envelope;
mod explain;
mod falling;
pub mod fit;
mod followed;
mod host;
mod lag;
mod managed;
mod measure;
mod notes;
mod outcome;
mod phase_peak;
mod ranks;
mod reading;
mod run;
mod share;
pub mod single;
pub mod solve;
mod summit;
#[cfg(test)]
mod tests;
mod traffic;
mod types;
mod work;

pub use crate::solve::{NOT_SEARCHED, max_batch};
pub use against::{Against, Asked, Differs, Pair, Requests};
pub use any_batch::{AnyBatch, Growth, Line, OneBatch};
pub use attribution::{Beyond, Explanation, Layer};
pub use compiled::Compiled;
pub use convolutions::{AskedCudnn, Convolutions};
pub use envelope::{Envelope, Stretch};
pub use falling::Falling;
pub use host::{Host, HostPhase, Loading, Nvme};
pub use lag::Lag;
pub use managed::Managed;
pub use measure::RequestedPeak;
pub(crate) use measure::largest_allocated;
pub use outcome::{CardMemory, Outcome};
pub use phase_peak::{PHASE_ORDER, PhasePeak, Which};
pub use plimsoll_catalog::device::DeviceLimits;
pub use plimsoll_ledger::{Parameters, PhaseName};
pub use plimsoll_run::{card, execute, execute_for_memory};
pub use plimsoll_torch::ops::{Answers, Question, Shape};
pub use ranks::{Communicator, Role};
pub use reading::{LedgerPeak, Reading, Summary};
pub use run::Run;
pub use traffic::Traffic;
pub use types::{Category, Estimate, Holding, Peak, PeakBreakdown, Phase, Timeline, TimelinePoint, Verdict};
pub use work::{PhaseWork, StepWork};

use plimsoll_ground::Result;
use plimsoll_scenario::Scenario;

/// Runs a scenario and searches the largest micro-batch that fits.
///
/// # Errors
/// As [`Run::new`].
pub fn estimate(scenario: &Scenario) -> Result<Estimate> {
    with_largest_batch(Run::new(scenario)?.with_falling().into_estimate(), scenario)
}

/// A scenario's estimate with the largest batch filled in; where the search for it is given up, that is said among the warnings.
///
/// # Errors
/// As [`max_batch`], but for that.
pub fn with_largest_batch(mut estimate: Estimate, scenario: &Scenario) -> Result<Estimate> {
    match max_batch(scenario) {
        Ok(batch) => estimate.max_batch = Some(batch),
        Err(error) if error.key == NOT_SEARCHED => estimate.warnings.push(error.problem),
        Err(error) => return Err(error),
    }
    Ok(estimate)
}
