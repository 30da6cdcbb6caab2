//! A scenario with another batch or sequence.

use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{Change, Scenario};

/// The same scenario with another micro-batch.
pub fn with_batch(scenario: &Scenario, batch: u64) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.input.batch = batch;
    scenario
}

/// The same scenario with another micro-batch and sequence, as if it had been asked for.
///
/// # Errors
/// When such a scenario is refused: more tokens than the model has positions for, a batch beyond any that is trained.
pub fn with_sizes(scenario: &Scenario, batch: u64, seq: Option<u64>) -> Result<Scenario> {
    Change::Sizes { batch, seq }.apply(scenario)
}

/// Refuses sequences for a model that has none.
///
/// # Errors
/// When there are any.
pub fn takes_sequences(scenario: &Scenario, seqs: &[u64]) -> Result<()> {
    if scenario.input.seq.is_some() || seqs.is_empty() {
        return Ok(());
    }
    Err(Error::new("input.seq", "a sample of this model has no sequence", "give batches only"))
}
