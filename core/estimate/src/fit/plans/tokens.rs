//! A step by its tokens.

use plimsoll_ground::Result;
use plimsoll_scenario::{Change, Scenario};

/// The scenario with so many tokens a step over all its cards, as one micro-batch.
///
/// # Errors
/// Tokens that the cards cannot share evenly, with those nearest that they can.
pub fn with_tokens(scenario: &Scenario, tokens: u64) -> Result<Scenario> {
    let error = |problem: String, hint: String| Err(plimsoll_ground::Error::new("tokens", problem, hint));
    let Some(seq) = scenario.input.seq.filter(|seq| *seq > 0) else {
        return error(
            "a sample of this model has no tokens".to_owned(),
            "say input.batch and training.accumulation".to_owned(),
        );
    };
    let share = seq.saturating_mul(scenario.parallel.gpus.max(1));
    let samples = tokens / share;
    if samples == 0 || !tokens.is_multiple_of(share) {
        let below = samples.saturating_mul(share);
        let above = samples.saturating_add(1).saturating_mul(share);
        let near = if below > 0 { format!("{below} or {above}") } else { above.to_string() };
        let problem = format!(
            "{tokens} tokens are not a whole number of sequences of {seq} on each of {} cards",
            scenario.parallel.gpus
        );
        return error(problem, format!("the nearest are {near}"));
    }
    let mut once = scenario.clone();
    once.training.accumulation = samples;
    Change::Sizes { batch: 1, seq: None }.apply(&once)
}
