//! The rows of `corpus/largest.jsonl`: largest micro-batches under a cap, as trials on a real card found them.

use anyhow::Context as _;
use plimsoll_core::Scenario;
use plimsoll_core::estimate::{Run, max_batch};
use serde::Deserialize;
use serde_json::Value;

use super::percent::percent;
use super::report::Page;

const ROWS: &str = include_str!("../../corpus/largest.jsonl");

/// One entry of the probe's list of fits.
#[derive(Clone, Debug, Deserialize)]
pub struct Largest {
    /// The entry's name.
    pub id: String,
    /// What was run; its own batch says nothing.
    pub scenario: Value,
    /// What trials found.
    pub expected: Found,
}

/// What trials found, in samples and bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Found {
    /// The largest micro-batch that trained.
    pub fits: u64,
    /// The smallest above it that did not.
    pub over: u64,
    /// What PyTorch reserved with the largest.
    pub reserved: u64,
    /// What NVML said of the process with the largest.
    pub process: u64,
}

/// What the engine says of it.
#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    /// The largest micro-batch.
    pub fits: u64,
    /// Of what is reserved at the one that trials found: the estimate's figure less what was read, as a share of that.
    pub reserved: f64,
    /// Likewise of what the process holds.
    pub process: f64,
}

/// Every row, in the order of the file.
///
/// # Errors
/// A line that is not a row, by number.
pub fn largest() -> anyhow::Result<Vec<Largest>> {
    let read =
        |(i, line)| serde_json::from_str(line).with_context(|| format!("tests/corpus/largest.jsonl, line {}", i + 1));
    ROWS.lines().enumerate().map(read).collect()
}

impl Largest {
    /// As the engine has it today.
    ///
    /// # Errors
    /// When the scenario is not estimated.
    pub fn predicted(&self) -> anyhow::Result<Predicted> {
        let mut scenario = Scenario::from_value(&self.scenario).with_context(|| self.id.clone())?;
        let fits = max_batch(&scenario).with_context(|| self.id.clone())?;
        scenario.input.batch = self.expected.fits;
        let run = Run::new(&scenario).with_context(|| self.id.clone())?;
        let peak = &run.estimate().peak;
        let share = |ours: u64, theirs: u64| (ours as f64 - theirs as f64) / theirs as f64;
        let Found { reserved, process, .. } = self.expected;
        Ok(Predicted {
            fits,
            reserved: share(peak.reserved.get(), reserved),
            process: share(peak.process.get(), process),
        })
    }
}

/// Writes the section.
///
/// # Errors
/// As [`largest`] and [`Largest::predicted`].
pub fn section(page: &mut Page) -> anyhow::Result<()> {
    page.line("\n### Largest micro-batches\n");
    page.line(
        "The ten scenarios of `plimsoll probe suite --fits` on the H100, capped at 12 GiB, three steps each (2026-11-27): the largest micro-batch\n\
         that trained, one sample above which it did not, beside what the engine says, and what the run took with it. *process* is NVML's figure.\n",
    );
    page.head(&["scenario", "trained", "predicted", "reserved", "process"], &["scenario"]);
    for row in largest()? {
        let predicted = row.predicted()?;
        page.row(&[
            format!("`{}`", row.id),
            row.expected.fits.to_string(),
            predicted.fits.to_string(),
            percent(predicted.reserved),
            percent(predicted.process),
        ]);
    }
    Ok(())
}
