//! Runs that others measured on cards, from loops anybody can read: the scoreboard's table "Runs of others on cards".

use anyhow::Context as _;
use plimsoll_core::Scenario;
use plimsoll_core::estimate::{Run, Verdict};
use serde::Deserialize;
use serde_json::Value;

use super::percent::{relative, signed_percent};
use super::report::Page;

const RUNS: &str = include_str!("../../corpus/runs.jsonl");

/// One measured run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredRun {
    /// Its name in this table.
    pub id: String,
    /// Model, optimizer and batch in the publisher's words.
    pub what: String,
    /// The highest that the driver showed for the process, less its context, in bytes.
    pub bytes: u64,
    /// What of it libraries took outside of PyTorch's allocator, loaded after the first sample.
    pub beside: u64,
    /// The same as a scenario.
    pub scenario: Value,
}

/// A run beside today's estimate.
#[derive(Clone, Debug)]
pub struct Rerun {
    /// What was measured.
    pub run: MeasuredRun,
    /// What the estimate says is reserved.
    pub reserved: u64,
    /// Whether it says that the run fits.
    pub fits: bool,
}

impl Rerun {
    /// How far the estimate is from what was measured.
    pub fn error(&self) -> f64 {
        relative(self.reserved + self.run.beside, self.run.bytes)
    }
}

/// Every run, in the order of the file.
///
/// # Errors
/// A line that is not a row, or a scenario that is refused.
pub fn runs() -> anyhow::Result<Vec<Rerun>> {
    let again = |(i, line): (usize, &str)| -> anyhow::Result<Rerun> {
        let run: MeasuredRun =
            serde_json::from_str(line).with_context(|| format!("tests/corpus/runs.jsonl, line {}", i + 1))?;
        let name = run.id.clone();
        let refused = |e: plimsoll_core::Error| anyhow::anyhow!("{name}: {e}");
        let scenario = Scenario::from_value(&run.scenario).map_err(refused)?;
        let again = Run::new(&scenario).map_err(refused)?;
        let estimate = again.estimate();
        Ok(Rerun { run, reserved: estimate.peak.reserved.get(), fits: estimate.verdict != Verdict::DoesNotFit })
    };
    RUNS.lines().enumerate().map(again).collect()
}

/// Writes the section.
///
/// # Errors
/// As [`runs`].
pub fn section(page: &mut Page) -> anyhow::Result<()> {
    let all = runs()?;
    page.line("\n## Runs of others on a card\n");
    page.line(&format!(
        "{} of the runs that xMem's authors measured on an RTX 3060 (arXiv 2510.21048), those whose highest figure is at hand to the MiB:\n\
         PyTorch 2.6, transformers 4.51, float32, texts of 128 tokens. What they read is the process without its context. Ours is\n\
         *reserved* and what libraries took outside of PyTorch (`beside` of `tests/corpus/runs.jsonl`, whose README says where it is\n\
         from, and that the runs have none of cuBLAS's workspaces in the pool: both were read off such runs). Nothing else was.\n",
        all.len()
    ));
    page.head(&["run", "card", "measured, MiB", "ours, MiB", "difference", "fits"], &["run", "card"]);
    for run in &all {
        let mib = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
        let card = run.run.scenario["device"]["gpu"].as_str().unwrap_or_default();
        page.row(&[
            format!("{} ({})", run.run.what, run.run.id),
            format!("`{card}`"),
            mib(run.run.bytes),
            mib(run.reserved + run.run.beside),
            signed_percent(run.error()),
            if run.fits { "yes".to_owned() } else { "no, we say".to_owned() },
        ]);
    }
    Ok(())
}
