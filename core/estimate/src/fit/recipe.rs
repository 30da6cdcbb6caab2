//! A recipe that fits, and one that nearly does.

use plimsoll_ground::{Bytes, Result};
use plimsoll_scenario::{Scenario, levers};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Cost;

/// A lever that a recipe sets otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Altered {
    /// Where it stands: `training.checkpointing`.
    pub path: String,
    /// What it was; null where there was none.
    pub from: Value,
    /// What it is now; null where there is none.
    pub to: Value,
}

impl Altered {
    /// Every lever that differs.
    pub fn between(before: &Scenario, after: &Scenario) -> Vec<Self> {
        let change = |lever: &'static plimsoll_scenario::Lever| {
            let (from, to) = (lever.get(before), lever.get(after));
            let altered = || Self {
                path: lever.path.to_owned(),
                from: from.clone().unwrap_or_default(),
                to: to.clone().unwrap_or_default(),
            };
            (from != to).then(altered)
        };
        levers().filter_map(change).collect()
    }
}

/// A complete recipe that keeps within the load line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// In short: `QLoRA, fused loss, batch 1 x 4`.
    pub name: String,
    /// Every lever that it sets otherwise.
    pub changes: Vec<Altered>,
    /// What that costs, what is learned last.
    pub costs: Vec<Cost>,
    /// The scenario whole, as it is written.
    pub scenario: Value,
    /// The command that asks about it in a terminal.
    pub command: String,
    /// Peak of the process.
    pub process: Bytes,
    /// Load line less that.
    pub headroom: i64,
    /// The largest micro-batch that fits with it.
    pub largest_batch: u64,
    /// The longest sequence, of one, two, four ... times its own, that fits at its micro-batch; `None` where a sample has
    /// none.
    pub longest_seq: Option<u64>,
}

impl Recipe {
    /// Its scenario.
    ///
    /// # Errors
    /// None that a recipe of [`super::fit`] has.
    pub fn scenario(&self) -> Result<Scenario> {
        Scenario::from_value(&self.scenario)
    }
}

/// The lightest of all recipes, where none fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Miss {
    /// In short.
    pub name: String,
    /// The scenario whole.
    pub scenario: Value,
    /// The command that asks about it in a terminal.
    pub command: String,
    /// Peak of the process.
    pub process: Bytes,
    /// By how much it exceeds the load line.
    pub over: Bytes,
    /// The smallest cards of the catalog that hold it.
    pub cards: Vec<super::Berthed>,
}
