//! One row of the corpus beside the engine's answer.

use plimsoll_core::estimate::{Category, Phase, Run};
use plimsoll_core::{Bytes, Error, Estimate, Scenario};

use super::corpus::{ExpectedPhase, Row, traced};
use super::percent::relative;

/// What came of a row.
#[derive(Debug)]
pub enum Outcome {
    /// The engine answered.
    Scored(Box<Score>),
    /// The engine does not estimate this yet, and says so.
    Refused(Box<Row>, Error),
}

/// A row and the engine's answer. Errors are relative and signed: `(estimate - traced) / traced`.
#[derive(Debug)]
pub struct Score {
    /// What PyTorch did.
    pub row: Row,
    /// What the engine says.
    pub estimate: Estimate,
    /// Per-phase peaks side by side, in the order they ran.
    pub phases: Vec<PhaseScore>,
    /// Phases only one side has; empty when the loops agree.
    pub unmatched_phases: Vec<String>,
}

/// One phase.
#[derive(Debug)]
pub struct PhaseScore {
    /// `backward@2.1`.
    pub name: String,
    /// Of the phase's highest `requested`.
    pub error: f64,
    /// Whether requested, allocated and reserved stand where PyTorch's do when it ends.
    pub end_exact: bool,
}

/// Runs every row of the corpus.
///
/// # Errors
/// A line of the corpus that is not a row or not a scenario.
pub fn evaluate() -> anyhow::Result<Vec<Outcome>> {
    traced()?.into_iter().map(evaluate_row).collect()
}

fn evaluate_row(row: Row) -> anyhow::Result<Outcome> {
    let scenario = Scenario::from_value(&row.scenario).map_err(|e| anyhow::anyhow!("row {}: {e}", row.id))?;
    Ok(match Run::new(&scenario) {
        Ok(run) => Outcome::Scored(Box::new(Score::new(row, run.estimate().clone()))),
        Err(error) => Outcome::Refused(Box::new(row), error),
    })
}

impl Score {
    fn new(row: Row, estimate: Estimate) -> Self {
        let expected: Vec<&ExpectedPhase> = row.expected.phases.iter().filter(|p| p.name != "end").collect();
        let same = |e: &ExpectedPhase, p: &Phase| {
            (e.name.as_str(), e.step, e.micro_batch) == (p.name.as_str(), p.step, p.micro_batch)
        };
        let mut phases = Vec::new();
        let mut unmatched = Vec::new();
        for e in &expected {
            let name = phase_name(&e.name, e.step, e.micro_batch);
            match estimate.phases.iter().find(|p| same(e, p)) {
                Some(p) => phases.push(PhaseScore {
                    name,
                    error: relative(p.peak_requested.get(), e.peak_requested.get()),
                    end_exact: (p.end_requested, p.end_allocated, p.end_reserved)
                        == (e.end_requested, e.end_allocated, e.end_reserved),
                }),
                None => unmatched.push(format!("{name} only in PyTorch")),
            }
        }
        for p in estimate.phases.iter().filter(|p| !expected.iter().any(|e| same(e, p))) {
            unmatched.push(format!("{} only here", phase_name(p.name.as_str(), p.step, p.micro_batch)));
        }
        Self { row, estimate, phases, unmatched_phases: unmatched }
    }

    /// Error of `max_memory_allocated`.
    pub fn allocated(&self) -> f64 {
        relative(self.estimate.peak.allocated.get(), self.row.expected.peak.allocated.get())
    }

    /// Error of `max_memory_reserved`.
    pub fn reserved(&self) -> f64 {
        relative(self.estimate.peak.reserved.get(), self.row.expected.peak.reserved.get())
    }

    /// Error of the sum of live storages.
    pub fn requested(&self) -> f64 {
        relative(self.estimate.peak.requested.get(), self.row.expected.peak.requested.get())
    }

    /// Whether both parameter counts agree.
    pub fn parameters_exact(&self) -> bool {
        let (ours, theirs) = (self.estimate.parameters, self.row.expected.parameters);
        (ours.total, ours.trainable) == (theirs.total, theirs.trainable)
    }

    /// Whether every category holds the same bytes where `requested` peaks.
    pub fn breakdown_exact(&self) -> bool {
        self.at_peak_differences().iter().all(|(_, bytes)| *bytes == 0)
    }

    /// Whether `requested` peaks in the same phase.
    pub fn peak_phase_agrees(&self) -> bool {
        self.peak_phase() == self.expected_peak_phase()
    }

    /// Where PyTorch's `requested` peaks, with the engine's name of the optimizer's phase.
    pub fn expected_peak_phase(&self) -> String {
        self.row.expected.peak.phase.replace("optim@", "optimizer@")
    }

    /// What the engine holds at the peak less what PyTorch holds there, in bytes, by category.
    pub fn at_peak_differences(&self) -> Vec<(Category, i128)> {
        let theirs = |c: Category| {
            let key = c.label().to_lowercase().replace(' ', "_");
            self.row.expected.at_peak.get(&key).and_then(serde_json::Value::as_u64).map_or(Bytes::ZERO, Bytes::new)
        };
        Category::ALL
            .iter()
            .map(|&c| (c, i128::from(self.estimate.at_peak.get(c).get()) - i128::from(theirs(c).get())))
            .collect()
    }

    /// Where the engine's `requested` peaks, in the corpus' words.
    pub fn peak_phase(&self) -> String {
        let peak = &self.estimate.peak;
        let held =
            |p: &&Phase| p.name == peak.phase && p.step.unwrap_or(0) == peak.step && p.peak_requested == peak.requested;
        match self.estimate.phases.iter().find(held) {
            Some(p) => phase_name(p.name.as_str(), p.step, p.micro_batch),
            None => phase_name(peak.phase.as_str(), Some(peak.step), None),
        }
    }
}

fn phase_name(name: &str, step: Option<u32>, micro_batch: Option<u64>) -> String {
    match (step, micro_batch) {
        (Some(step), Some(micro)) => format!("{name}@{step}.{micro}"),
        (Some(step), None) => format!("{name}@{step}"),
        _ => name.to_owned(),
    }
}
