//! The rows of `corpus/own.jsonl`, traced by this project: optimizers and losses that the reference rows do not have.

use anyhow::Context as _;
use plimsoll_core::estimate::Run;
use plimsoll_core::{Bytes, Scenario};
use serde::Deserialize;
use serde_json::Value;

use super::recipe::Recipe;
use super::report::Page;

const OWN: &str = include_str!("../../corpus/own.jsonl");

/// One training run as PyTorch and the libraries in it ran it.
#[derive(Clone, Debug, Deserialize)]
pub struct OwnRow {
    /// Stable id.
    pub id: String,
    /// The model in words.
    pub name: String,
    /// What was run, in the scenario's own format.
    pub scenario: Value,
    /// What was traced.
    pub expected: OwnExpected,
}

/// What was traced. All sizes are of live storages, each rounded to 512 bytes: no allocator had a part in them.
#[derive(Clone, Debug, Deserialize)]
pub struct OwnExpected {
    /// Numbers in the model.
    pub parameters: u64,
    /// How many storages came and went.
    pub events: u64,
    /// The highest point of both steps.
    pub peak_requested: Bytes,
    /// Every phase in order.
    pub phases: Vec<OwnPhase>,
}

/// One phase.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct OwnPhase {
    /// `forward`, `backward`, ...
    pub name: String,
    /// Its highest point.
    pub peak_requested: Bytes,
    /// What was left when it ended.
    pub end_requested: Bytes,
}

/// Every row, in the order of the file.
///
/// # Errors
/// A line that is not a row, by number.
pub fn own() -> anyhow::Result<Vec<OwnRow>> {
    let read =
        |(i, line)| serde_json::from_str(line).with_context(|| format!("tests/corpus/own.jsonl, line {}", i + 1));
    OWN.lines().enumerate().map(read).collect()
}

impl OwnRow {
    /// The scenario in words.
    pub fn recipe(&self) -> Recipe<'_> {
        Recipe(&self.scenario)
    }

    /// Which of the levers that only these rows have it is about.
    pub fn lever(&self) -> String {
        let training = &self.scenario["training"];
        let word = |key: &str| training[key].as_str().unwrap_or_default();
        let mut levers = Vec::new();
        match word("optimizer") {
            "adamw-8bit" => levers.push("8-bit AdamW".to_owned()),
            name @ ("lion" | "muon" | "adagrad" | "adafactor-torch") => {
                levers.push(format!("{name}, {}", word("optimizer_impl")))
            }
            name if name.starts_with("rmsprop") => levers.push(format!("rmsprop, {}", word("optimizer_impl"))),
            _ => {}
        }
        if training["use_cache"] == true {
            levers.push("keys and values held".to_owned());
        }
        if training["lora"]["autocast_adapter_dtype"] == false {
            levers.push("adapters in 16 bits".to_owned());
        }
        if let chunked @ ("chunked" | "fused-linear" | "fused-lm-head") = word("loss_impl") {
            levers.push(format!("{chunked} loss"));
        }
        if training["label_smoothing"].is_number() {
            levers.push("label smoothing".to_owned());
        }
        if training["ema"] == true {
            levers.push("EMA".to_owned());
        }
        if training["reference_model"] == true {
            levers.push("a reference model".to_owned());
        }
        if levers.is_empty() {
            return "other families, single samples".to_owned();
        }
        levers.join(", ")
    }

    /// What differs between the engine and the trace: nothing, or the figures in words.
    ///
    /// # Errors
    /// A scenario the engine refuses.
    pub fn differences(&self) -> anyhow::Result<Vec<String>> {
        let refused = |e| anyhow::anyhow!("row {} ({}): {e}", self.id, self.name);
        let run = Run::new(&Scenario::from_value(&self.scenario).map_err(refused)?).map_err(refused)?;
        let (estimate, expected) = (run.estimate(), &self.expected);
        let mut found = Vec::new();
        let mut compare = |what: String, ours: u64, theirs: u64| {
            if ours != theirs {
                found.push(format!("{what}: {ours} instead of {theirs}"));
            }
        };
        compare("parameters".to_owned(), estimate.parameters.total, expected.parameters);
        compare("peak".to_owned(), estimate.peak.requested.get(), expected.peak_requested.get());
        compare("births and deaths".to_owned(), run.ledger().events.len() as u64, expected.events);
        compare("phases".to_owned(), estimate.phases.len() as u64, expected.phases.len() as u64);
        for (i, (ours, theirs)) in estimate.phases.iter().zip(&expected.phases).enumerate() {
            let name = format!("{} (phase {i})", theirs.name);
            compare(format!("peak of {name}"), ours.peak_requested.get(), theirs.peak_requested.get());
            compare(format!("end of {name}"), ours.end_requested.get(), theirs.end_requested.get());
            if ours.name.as_str() != theirs.name {
                compare(format!("{} in the place of {name}", ours.name.as_str()), 1, 0);
            }
        }
        Ok(found)
    }
}

/// The part of the scoreboard about these rows.
pub(super) fn section(page: &mut Page) -> anyhow::Result<()> {
    page.line("## Rows of our own\n");
    page.line(
        "Optimizers, losses and families that the rows above do not have, traced the same way by this project: the real PyTorch 2.11,\n\
         transformers 5.17, peft, bitsandbytes 0.50, lion-pytorch 0.2 and liger-kernel 0.8, with the CUDA and Triton kernels of the\n\
         last three left out, which write into tensors that are there already. A row is exact when the number of storages that came\n\
         and went, and every phase's *requested* peak and end, are PyTorch's to the byte.\n",
    );
    page.head(&["lever", "rows", "exact to the byte"], &["lever"]);
    let mut levers: Vec<(String, usize, usize)> = Vec::new();
    for row in own()? {
        let (name, exact) = (row.lever(), usize::from(row.differences()?.is_empty()));
        match levers.iter_mut().find(|(lever, ..)| *lever == name) {
            Some((_, rows, exacts)) => (*rows, *exacts) = (*rows + 1, *exacts + exact),
            None => levers.push((name, 1, exact)),
        }
    }
    levers.sort();
    for (name, rows, exact) in levers {
        page.row(&[name, rows.to_string(), format!("{exact} of {rows}")]);
    }
    page.line("");
    Ok(())
}
