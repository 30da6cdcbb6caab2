//! Measurements on real cards beside today's estimate of what they ran.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use plimsoll_core::estimate::Run;
use plimsoll_core::measurement::DeviceKind;
use plimsoll_core::{Bytes, Error, Measurement};
use serde_json::Value;

use super::percent::relative;
use super::recipe::Recipe;

/// One record of `data/measurements`.
#[derive(Debug)]
pub struct CardRow {
    /// The folder it lies in: the card's id.
    pub card: String,
    /// The file's name without its ending.
    pub name: String,
    /// What was run, every default filled in.
    pub scenario: Value,
    /// PyTorch's version.
    pub torch: String,
    /// What came of it.
    pub outcome: CardOutcome,
}

/// What came of a record.
#[derive(Debug)]
pub enum CardOutcome {
    /// Measured and estimated.
    Compared(CardErrors),
    /// The run has no peaks of a whole step.
    Unfinished,
    /// The engine does not estimate this yet, and says so.
    Refused(Error),
}

/// Relative, signed errors: `(estimate - measured) / measured`; absent where the device does not tell the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CardErrors {
    /// Of `max_memory_allocated`.
    pub allocated: Option<f64>,
    /// Of `max_memory_reserved`.
    pub reserved: Option<f64>,
    /// Of the process's memory.
    pub process: Option<f64>,
}

impl CardErrors {
    /// The largest of them, whatever its sign.
    pub fn worst(&self) -> f64 {
        [self.allocated, self.reserved, self.process].into_iter().flatten().map(f64::abs).fold(0.0, f64::max)
    }
}

impl CardRow {
    /// The recipe in words.
    pub fn recipe(&self) -> Recipe<'_> {
        Recipe(&self.scenario)
    }

    /// The errors of a compared record.
    pub fn errors(&self) -> Option<CardErrors> {
        match self.outcome {
            CardOutcome::Compared(errors) => Some(errors),
            CardOutcome::Unfinished | CardOutcome::Refused(_) => None,
        }
    }
}

/// Reads `<directory>/<card>/*.json` in the order of their names and estimates each anew: the estimate inside a record
/// is that of the day it was taken. A directory that is not there holds no records.
///
/// # Errors
/// A record that cannot be read or is not valid, with everything that is wrong with it; one in the wrong folder.
pub fn cards(directory: &Path) -> anyhow::Result<Vec<CardRow>> {
    let mut rows = Vec::new();
    for (card, path) in listed(directory)? {
        ensure!(
            path.is_dir() || !card.ends_with(".json"),
            "{}: a record belongs in the folder of its card, data/measurements/<id of the card>/",
            path.display()
        );
        if !path.is_dir() {
            continue;
        }
        for (file, path) in listed(&path)? {
            if let Some(name) = file.strip_suffix(".json") {
                let row = read(&card, name, &path).with_context(|| path.display().to_string())?;
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Names and paths in a directory, in order.
fn listed(directory: &Path) -> anyhow::Result<Vec<(String, std::path::PathBuf)>> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let entry = entry?;
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    found.sort();
    Ok(found)
}

fn read(card: &str, name: &str, path: &Path) -> anyhow::Result<CardRow> {
    let record = Measurement::from_json(&fs::read_to_string(path)?)?;
    let problems = record.validate();
    if !problems.is_empty() {
        let lines: Vec<String> = problems.iter().map(|p| format!("\n  {p}")).collect();
        bail!("the record is not valid:{}", lines.concat());
    }
    ensure!(record.device.kind != DeviceKind::Cpu, "it was taken on a processor: only records of cards are kept here");
    ensure!(
        record.device.gpu.as_deref() == Some(card),
        "it was taken on {:?} (device.gpu is {}), but lies in the folder {card}",
        record.device.name,
        record.device.gpu.as_deref().unwrap_or("missing")
    );
    let scenario = record.as_run()?;
    let outcome = if record.finished() {
        match Run::new(&scenario) {
            Ok(run) => CardOutcome::Compared(errors(&record, &run)),
            Err(error) => CardOutcome::Refused(error),
        }
    } else {
        CardOutcome::Unfinished
    };
    let (scenario, torch) = (scenario.to_value(), record.software.torch);
    Ok(CardRow { card: card.to_owned(), name: name.to_owned(), scenario, torch, outcome })
}

fn errors(record: &Measurement, run: &Run) -> CardErrors {
    let estimate = &run.estimate().peak;
    let error =
        |ours: Bytes, theirs: Option<Bytes>| theirs.filter(|b| b.get() > 0).map(|b| relative(ours.get(), b.get()));
    CardErrors {
        allocated: error(estimate.allocated, record.peak.allocated),
        reserved: error(estimate.reserved, record.peak.reserved),
        process: error(estimate.process, record.peak.process),
    }
}
