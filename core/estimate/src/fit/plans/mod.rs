//! Find the plan: how to spread a training over its cards so that it fits, at the least cost.
//!
//! Strategy, what is cut and for how long it is whole, recomputing, offload and micro-batch are searched; what a step learns
//! from stays: as many samples, as often. Every plan that is named has been run whole, and every way that is not has a reason.
//! What is left out without being run is left out by bounds that hold: parts that are there whatever the micro-batch, and
//! live tensors, which only grow with it.

mod bound;
mod candidate;
mod look;
mod search;
#[cfg(test)]
mod tests;
mod tokens;
mod trial;
mod ways;

use plimsoll_catalog::device::DeviceLimits;
use plimsoll_ground::{Bytes, Result};
use plimsoll_scenario::Scenario;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Altered, Cost, Miss};
use crate::{Traffic, Verdict};

pub use bound::{Bound, seconds};
pub use search::{Search, plans};
pub use tokens::with_tokens;

/// What may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freedom {
    /// The strategy: else only what the one that was asked for can be told.
    pub strategy: bool,
    /// Whether blocks are recomputed.
    pub recompute: bool,
    /// Whether something lies in the machine's memory.
    pub offload: bool,
    /// The micro-batch, and with it the accumulation.
    pub micro_batch: bool,
}

impl Default for Freedom {
    fn default() -> Self {
        Self { strategy: true, recompute: true, offload: true, micro_batch: true }
    }
}

/// What brings a training onto its cards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plans {
    /// Format version: 1.
    pub schema: u32,
    /// What was asked, whole.
    pub scenario: Value,
    /// What of it might be changed.
    pub freedom: Freedom,
    /// Its verdict as it is.
    pub verdict: Verdict,
    /// Its peak on a card.
    pub process: Bytes,
    /// Load line less that.
    pub headroom: i64,
    /// Each card's limits.
    pub device: DeviceLimits,
    /// How many cards, and how many in a machine.
    pub gpus: u64,
    /// Cards in a machine.
    pub per_node: u64,
    /// Samples of a step, over all cards.
    pub samples: u64,
    /// Tokens of a step, over all cards; `None` where a sample has none.
    pub tokens: Option<u64>,
    /// The plans, the cheapest first.
    pub plans: Vec<Plan>,
    /// Every other way, and why it is none of them.
    pub rejected: Vec<Rejected>,
    /// What is not searched at all.
    pub not_searched: Vec<String>,
    /// Where nothing fits: the lightest there is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nearest: Option<Miss>,
    /// What cards of the machine are joined by.
    pub joined_by: String,
    /// Where the rates of the links are from.
    pub rates: String,
    /// How many combinations of way, recomputing, step and micro-batch there are.
    pub combinations: u64,
    /// How many of them were run.
    pub looked_at: u64,
    /// How many were left out by a bound.
    pub pruned: u64,
    /// How many runs it took in all: those, and once more those that are weighed and named.
    pub runs: u64,
}

/// A complete plan that keeps within the load line on every card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// In short: `FSDP2, checkpointing, micro-batch 4 x 4`.
    pub name: String,
    /// Every lever that it sets otherwise; none where it is what was asked.
    pub changes: Vec<Altered>,
    /// What that costs, in words.
    pub costs: Vec<Cost>,
    /// The scenario whole, as it is written.
    pub scenario: Value,
    /// The command that asks about it in a terminal.
    pub command: String,
    /// Peak of the process, on the card that holds most.
    pub process: Bytes,
    /// Load line less that.
    pub headroom: i64,
    /// Operations of a card in a step.
    pub flops: u64,
    /// How many of them the cheapest candidate does not have.
    pub extra_flops: u64,
    /// What a card sends in a step.
    pub traffic: Traffic,
    /// What no step is faster than.
    pub bound: Bound,
}

impl Plan {
    /// Its scenario.
    ///
    /// # Errors
    /// None that a plan of [`plans`] has.
    pub fn scenario(&self) -> Result<Scenario> {
        Scenario::from_value(&self.scenario)
    }
}

/// Why a way is none of the plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The engine does not run it, or PyTorch does not.
    Refused,
    /// What is there whatever the micro-batch is too much.
    StatesTooLarge,
    /// It cannot be loaded.
    LoadingTooLarge,
    /// It does not fit at any micro-batch.
    DoesNotFit,
    /// A plan that is named is no dearer in anything.
    Dearer,
    /// It fits, and there are better ones than are named.
    Behind,
}

/// A way that is none of the plans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    /// In short.
    pub name: String,
    /// Of which kind the reason is.
    pub why: Why,
    /// It in a clause.
    pub words: String,
    /// The scenario that shows it, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scenario: Option<Value>,
}
