//! Rows of what a step computes, as `torch.utils.flop_counter` counts it.

use std::collections::{BTreeMap, HashMap};

use anyhow::Context;
use plimsoll_core::Scenario;
use plimsoll_core::estimate::{PhaseWork, Run};
use serde::Deserialize;
use serde_json::Value;

const ROWS: &str = include_str!("../../corpus/work.jsonl");
const CORPORA: [&str; 2] = [include_str!("../../corpus/own.jsonl"), include_str!("../../corpus/own-adapters.jsonl")];

/// The operations of a steady step of a row that stands in another corpus.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkRow {
    /// The row's id there.
    pub id: String,
    /// Phases by name.
    work: BTreeMap<String, Counted>,
    /// What was run.
    #[serde(skip)]
    pub scenario: Value,
}

/// Operations by the type of the operands.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counted {
    flops: BTreeMap<String, u64>,
}

/// Every row, with its scenario.
///
/// # Errors
/// A line that is no row, or whose id stands nowhere.
pub fn work() -> anyhow::Result<Vec<WorkRow>> {
    let mut scenarios: HashMap<String, Value> = HashMap::new();
    for line in CORPORA.iter().flat_map(|text| text.lines()) {
        let mut row: Value = serde_json::from_str(line)?;
        let id = row["id"].as_str().unwrap_or_default().to_owned();
        scenarios.insert(id, row["scenario"].take());
    }
    let read = |line: &str| {
        let mut row: WorkRow = serde_json::from_str(line)?;
        row.scenario = scenarios.remove(&row.id).with_context(|| format!("{} is no row", row.id))?;
        Ok(row)
    };
    ROWS.lines().map(read).collect()
}

impl WorkRow {
    /// What the engine counts otherwise, in words.
    ///
    /// # Errors
    /// A scenario that cannot be estimated.
    pub fn differences(&self) -> anyhow::Result<Vec<String>> {
        let scenario = Scenario::from_value(&self.scenario)?;
        let run = Run::new(&scenario)?;
        let work = &run.estimate().work;
        let phases = [("forward", &work.forward), ("backward", &work.backward), ("optimizer", &work.optimizer)];
        Ok(phases.into_iter().filter_map(|(name, phase)| self.difference(name, phase)).collect())
    }

    fn difference(&self, name: &str, phase: &PhaseWork) -> Option<String> {
        let none = Counted::default();
        let expected = &self.work.get(name).unwrap_or(&none).flops;
        // A product of 8-bit integers is a kernel of bitsandbytes, of which PyTorch's counter knows nothing.
        let found: BTreeMap<String, u64> = phase
            .flops
            .iter()
            .filter(|(dtype, _)| **dtype != "int8")
            .map(|(dtype, n)| ((*dtype).to_owned(), *n))
            .collect();
        (found != *expected).then(|| format!("{name}: {found:?}, expected {expected:?}"))
    }
}
