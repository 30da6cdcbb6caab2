//! Whether anything was computed at all.

use plimsoll_scenario::{Mode, Scenario, Task};

use super::super::problems::Problems;
use super::super::{MeasuredStep, Measurement};

pub fn check(record: &Measurement, scenario: Option<&Scenario>, problems: &mut Problems) {
    problems.unless(
        !record.device.hollow,
        "device.hollow",
        || "there was no such card: kernels did nothing, so this is a rehearsal and no measurement".to_owned(),
        "measure on the card itself; what was rehearsed stays on this machine",
    );
    problems.unless(
        record.device.hollow || !computes_nothing(record, scenario),
        "steps",
        || "every loss is exactly 0: the card computed nothing".to_owned(),
        "see whether the card and its driver compute what they should, then measure again",
    );
}

/// Whether every step of the training had a loss of exactly 0, which random data do not give. Only one sample that is
/// contrasted with itself does.
pub fn computes_nothing(record: &Measurement, scenario: Option<&Scenario>) -> bool {
    let Some(scenario) = scenario.filter(|s| s.training.mode == Mode::Train) else { return false };
    let alone = |step: &MeasuredStep| record.attempts.get(step.attempt as usize).is_none_or(|a| a.batch <= 1);
    let zero = |step: &MeasuredStep| step.loss == Some(0.0);
    let excused = |step: &MeasuredStep| scenario.model.task == Task::Contrastive && alone(step);
    !record.steps.is_empty() && record.steps.iter().all(|step| zero(step) && !excused(step))
}
