//! The rows of `corpus/traced.jsonl`; `corpus/README.md` says where they come from and what each column is.

use anyhow::Context as _;
use plimsoll_core::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::recipe::Recipe;

/// Compiled in, because the wasm tests have no file system.
const TRACED: &str = include_str!("../../corpus/traced.jsonl");

/// One training run as PyTorch ran it.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// Stable id.
    pub id: String,
    /// The model in words.
    pub name: String,
    /// What was run, in the scenario's own format.
    pub scenario: Value,
    /// What PyTorch did.
    pub expected: Expected,
}

/// What was traced.
#[derive(Clone, Debug, Deserialize)]
pub struct Expected {
    /// Numbers in the model.
    pub parameters: ExpectedParameters,
    /// The highest point of both steps.
    pub peak: ExpectedPeak,
    /// Live bytes where `requested` peaks; a category that holds nothing is absent.
    pub at_peak: serde_json::Map<String, Value>,
    /// Every phase in order; the last is `end`, the state after the loop.
    pub phases: Vec<ExpectedPhase>,
}

/// Numbers (not bytes) in the model.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct ExpectedParameters {
    /// All of them.
    pub total: u64,
    /// Those that require a gradient.
    pub trainable: u64,
}

/// The highest point.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedPeak {
    /// `max_memory_allocated`.
    pub allocated: Bytes,
    /// Live storages, each rounded to 512 bytes.
    pub requested: Bytes,
    /// `max_memory_reserved`.
    pub reserved: Bytes,
    /// Where `requested` peaks: `name@step.micro_batch`; the optimizer is called `optim` here.
    pub phase: String,
}

/// One phase.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedPhase {
    /// `forward`, `backward`, ...
    pub name: String,
    /// Optimizer step.
    pub step: Option<u32>,
    /// Micro-batch within the step.
    pub micro_batch: Option<u64>,
    /// Highest `requested` within the phase.
    pub peak_requested: Bytes,
    /// `requested` when it ended.
    pub end_requested: Bytes,
    /// Allocated when it ended.
    pub end_allocated: Bytes,
    /// Reserved when it ended.
    pub end_reserved: Bytes,
}

/// Every row, in the order of the file.
///
/// # Errors
/// A line that is not a row, by number.
pub fn traced() -> anyhow::Result<Vec<Row>> {
    TRACED
        .lines()
        .enumerate()
        .map(|(i, line)| {
            serde_json::from_str(line).with_context(|| format!("tests/corpus/traced.jsonl, line {}", i + 1))
        })
        .collect()
}

impl Row {
    /// The scenario in words.
    pub fn recipe(&self) -> Recipe<'_> {
        Recipe(&self.scenario)
    }

    /// `llama`, `gpt2`, `nbeats`, ...
    pub fn family(&self) -> &str {
        self.recipe().family()
    }

    /// A word of `[training]`: `precision`, `optimizer`, ...
    pub fn training(&self, key: &str) -> &str {
        self.recipe().training(key)
    }

    /// A word of `[input]`.
    pub fn input(&self, key: &str) -> &str {
        self.recipe().input(key)
    }

    /// A number of `[input]`.
    pub fn input_number(&self, key: &str) -> Option<u64> {
        self.recipe().input_number(key)
    }

    /// Micro-batches per optimizer step.
    pub fn accumulation(&self) -> u64 {
        self.recipe().accumulation()
    }

    /// The adapters, if there are any.
    pub fn lora(&self) -> Option<&Value> {
        self.recipe().lora()
    }

    /// What was run, in a few words: `batch 4 x 512, bf16-amp, adamw fused, checkpointing`.
    pub fn summary(&self) -> String {
        self.recipe().summary()
    }
}
