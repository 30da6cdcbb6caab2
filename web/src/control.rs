//! Which controls a scenario has, and what they offer: exactly what the engine takes.

use plimsoll_core::Scenario;
use plimsoll_core::scenario::{Kind, Lever, Word};
use serde_json::Value;

/// Whether a lever has a control: it stands in a table that the scenario has, and there is a choice.
pub fn is_shown(lever: &'static Lever, scenario: &Scenario) -> bool {
    lever.is_open(scenario) && lever.is_offered(scenario)
}

/// The words a control offers.
pub fn words(lever: &'static Lever, scenario: &Scenario) -> Vec<Word> {
    let Kind::Words(words) = lever.row.kind else { return Vec::new() };
    let offers = lever.offers(scenario);
    words.iter().copied().filter(|word| offers.contains(&Value::from(word.key))).collect()
}
