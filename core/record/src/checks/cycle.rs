//! The loop: attempts, the order of phases, steps and how fast they were.

use plimsoll_ledger::PhaseName;
use plimsoll_scenario::Scenario;
use plimsoll_scenario::{Mode, ZeroGradAt, limits};

use super::super::problems::{MEASURE_AGAIN, Problems};
use super::super::{Attempt, EventKind, MeasuredPhase, MeasuredStep, Measurement, Outcome};

/// How far a speed may be from what its step time gives: it was rounded on the way.
const ROUNDING: f64 = 0.01;

pub fn check(record: &Measurement, scenario: Option<&Scenario>, problems: &mut Problems) {
    attempts(record, scenario, problems);
    phases(record, scenario, problems);
    steps(record, scenario, problems);
    speed(record, scenario, problems);
}

/// Whether nothing was trained: then a run from fresh inputs to what comes out stands where training has a step.
fn infers(scenario: Option<&Scenario>) -> bool {
    scenario.is_some_and(|s| s.training.mode == Mode::Inference)
}

fn attempts(record: &Measurement, scenario: Option<&Scenario>, problems: &mut Problems) {
    let Some(first) = record.attempts.first() else {
        problems.add("attempts", "there is none", "measure again: a record tells of one attempt at least");
        return;
    };
    if let Some(scenario) = scenario {
        let asked = (scenario.input.batch, scenario.training.accumulation);
        problems.unless(
            asked == (first.batch, first.accumulation),
            "attempts[0]",
            || format!("{} x {} is not the scenario's {} x {}", first.batch, first.accumulation, asked.0, asked.1),
            "the first attempt is the scenario itself",
        );
    }
    let raised = record.events.iter().any(|e| e.kind == EventKind::Raised);
    let effective = first.batch.saturating_mul(first.accumulation);
    for (index, attempt) in record.attempts.iter().enumerate() {
        let key = |name: &str| format!("attempts[{index}].{name}");
        let (batch, accumulation) = (attempt.batch, attempt.accumulation);
        let sizes = [("batch", batch, limits::BATCH), ("accumulation", accumulation, limits::BATCH)];
        for (name, size, most) in sizes {
            let hint = "give a whole number of samples or micro-batches";
            problems.unless((1..=most).contains(&size), key(name), || format!("{size} is out of range"), hint);
        }
        if infers(scenario) {
            problems.unless(
                accumulation == 1,
                key("accumulation"),
                || format!("{accumulation} micro-batches, where nothing is accumulated"),
                "inference has one batch at a time: give 1",
            );
            has_steps_if_finished(attempt, key("steps"), problems);
            continue;
        }
        // The last micro-batch may be smaller than the others.
        problems.unless(
            raised || batch == 0 || accumulation == effective.div_ceil(batch),
            key("accumulation"),
            || format!("{batch} x {accumulation} is another effective batch than {effective}"),
            "an attempt keeps the effective batch unless an event says that it was raised",
        );
        has_steps_if_finished(attempt, key("steps"), problems);
    }
}

fn has_steps_if_finished(attempt: &Attempt, key: String, problems: &mut Problems) {
    problems.unless(
        attempt.outcome != Outcome::Finished || attempt.steps > 0,
        key,
        || "an attempt without a step cannot have finished".to_owned(),
        MEASURE_AGAIN,
    );
}

/// Whether a loop of this mode has such a phase.
const fn belongs(name: PhaseName, infers: bool) -> bool {
    match name {
        PhaseName::Load | PhaseName::Input | PhaseName::Forward => true,
        PhaseName::Prefill | PhaseName::Decode => infers,
        PhaseName::Backward | PhaseName::Clip | PhaseName::Optimizer | PhaseName::ZeroGrad => !infers,
    }
}

/// Where a phase stands in its step: the micro-batch (past all of them for what is once per step), then its rank.
fn place(phase: &MeasuredPhase, zeroed: ZeroGradAt) -> (u64, u8) {
    let micro_batch = phase.micro_batch.unwrap_or(u64::MAX);
    match phase.name {
        PhaseName::Load => (0, 0),
        PhaseName::Input => (micro_batch, 1),
        // Between the first micro-batch's input and its forward.
        PhaseName::ZeroGrad if zeroed == ZeroGradAt::BeforeForward => (1, 2),
        PhaseName::Forward => (micro_batch, 3),
        // Between the first micro-batch's forward and its backward.
        PhaseName::ZeroGrad if zeroed == ZeroGradAt::BeforeBackward => (1, 4),
        PhaseName::Backward => (micro_batch, 5),
        PhaseName::Clip => (u64::MAX, 6),
        PhaseName::Optimizer => (u64::MAX, 7),
        PhaseName::ZeroGrad => (u64::MAX, 8),
        PhaseName::Prefill => (u64::MAX, 9),
        PhaseName::Decode => (u64::MAX, 10),
    }
}

fn phases(record: &Measurement, scenario: Option<&Scenario>, problems: &mut Problems) {
    let infers = infers(scenario);
    let zeroed = scenario.map_or(ZeroGradAt::AfterStep, |s| s.training.zero_grad_at);
    let mut last = None;
    for (index, phase) in record.phases.iter().enumerate() {
        let key = |name: &str| format!("phases[{index}].{name}");
        let Some(attempt) = record.attempts.get(phase.attempt as usize) else {
            problems.add(key("attempt"), format!("there is no attempt {}", phase.attempt), MEASURE_AGAIN);
            continue;
        };
        if let Some(scenario) = scenario {
            problems.unless(
                belongs(phase.name, infers),
                key("name"),
                || format!("{} has no place in {}", phase.name.as_str(), scenario.training.mode),
                "training has forward, backward, clip, optimizer and zero_grad; inference has prefill and decode, or \
                 forward",
            );
        }
        let load = phase.name == PhaseName::Load;
        let each = matches!(phase.name, PhaseName::Input | PhaseName::Forward | PhaseName::Backward);
        problems.unless(
            phase.step.is_some() != load,
            key("step"),
            || "only load is outside the steps".to_owned(),
            "give the optimizer step, from 1, and none for load",
        );
        problems.unless(
            if each {
                phase.micro_batch.is_some()
            } else {
                phase.micro_batch.is_none_or(|_| phase.name == PhaseName::ZeroGrad)
            },
            key("micro_batch"),
            || "input, forward and backward are once per micro-batch, all else is not".to_owned(),
            "give the micro-batch, from 1, of input, forward and backward",
        );
        // The step that ran out of memory did not finish.
        let step_known = phase.step.is_none_or(|s| s >= 1 && s <= attempt.steps.saturating_add(1));
        problems.unless(step_known, key("step"), || "the attempt has no such step".to_owned(), MEASURE_AGAIN);
        problems.unless(
            phase.micro_batch.is_none_or(|m| m >= 1 && m <= attempt.accumulation),
            key("micro_batch"),
            || "the attempt has no such micro-batch".to_owned(),
            MEASURE_AGAIN,
        );
        let (micro_batch, rank) = place(phase, zeroed);
        let now = (phase.attempt, phase.step.unwrap_or(0), micro_batch, rank);
        problems.unless(
            last.is_none_or(|last| last < now),
            key("name"),
            || format!("{} stands out of the loop's order", phase.name.as_str()),
            "phases stand in the order they ran: load, then input, forward, backward of each micro-batch, clip, \
             optimizer, zero_grad; in inference load, then input, prefill, decode or input, forward",
        );
        last = Some(now);
    }
}

fn steps(record: &Measurement, scenario: Option<&Scenario>, problems: &mut Problems) {
    let mut next: Vec<u64> = vec![1; record.attempts.len()];
    let mut attempt = 0;
    for (index, step) in record.steps.iter().enumerate() {
        let key = |name: &str| format!("steps[{index}].{name}");
        let Some(expected) = next.get_mut(step.attempt as usize) else {
            problems.add(key("attempt"), format!("there is no attempt {}", step.attempt), MEASURE_AGAIN);
            continue;
        };
        problems.unless(
            step.attempt >= attempt && step.step == *expected,
            key("step"),
            || format!("step {} of attempt {} comes where {expected} is due", step.step, step.attempt),
            "give every step in order, counted from 1 within its attempt",
        );
        attempt = step.attempt;
        *expected = step.step.saturating_add(1);
        problems.unless(step.micros > 0, key("micros"), || "a step takes time".to_owned(), MEASURE_AGAIN);
        let finite = |number: Option<f64>| number.is_none_or(f64::is_finite);
        problems.unless(finite(step.loss), key("loss"), || "it is not finite".to_owned(), "leave it out");
        problems.unless(
            finite(step.scale) && step.scale.is_none_or(|scale| scale > 0.0),
            key("scale"),
            || "a scale is positive".to_owned(),
            "give GradScaler's scale, or leave it out",
        );
        problems.unless(
            !infers(scenario) || (step.loss.is_none() && step.scale.is_none() && !step.skipped),
            key("loss"),
            || "inference has no loss, no scale and nothing to skip".to_owned(),
            "leave them out",
        );
        problems.unless(
            !step.skipped || step.scale.is_some(),
            key("skipped"),
            || "only a GradScaler skips steps, and then it has a scale".to_owned(),
            MEASURE_AGAIN,
        );
    }
    for (index, (attempt, next)) in record.attempts.iter().zip(next).enumerate() {
        problems.unless(
            attempt.steps == next - 1,
            format!("attempts[{index}].steps"),
            || format!("it tells of {} steps, but {} are given", attempt.steps, next - 1),
            MEASURE_AGAIN,
        );
    }
}

fn speed(record: &Measurement, scenario: Option<&Scenario>, problems: &mut Problems) {
    let (Some(speed), Some(subject)) = (record.speed, record.subject()) else { return };
    let of_subject = |step: &&MeasuredStep| step.attempt as usize == subject;
    let mut times: Vec<u64> = record.steps.iter().filter(of_subject).skip(1).map(|s| s.micros).collect();
    times.sort_unstable();
    let (Some(low), Some(high)) = (times.get(times.len().saturating_sub(1) / 2), times.get(times.len() / 2)) else {
        problems.add("speed", "there is no steady state: fewer than two steps finished", "leave it out");
        return;
    };
    problems.unless(
        (*low..=*high).contains(&speed.step_micros),
        "speed.step_micros",
        || format!("{} is not the median of the steady steps, {low}", speed.step_micros),
        "give the median of all steps but the first",
    );
    let Some(attempt) = record.attempts.get(subject) else { return };
    // The last micro-batch may hold as little as one sample.
    let most = attempt.batch.saturating_mul(attempt.accumulation);
    let least = attempt.batch.saturating_mul(attempt.accumulation.saturating_sub(1)).saturating_add(1);
    let samples = speed.samples_per_second * speed.step_micros as f64 / 1e6;
    problems.unless(
        samples >= least as f64 * (1.0 - ROUNDING) && samples <= most as f64 * (1.0 + ROUNDING),
        "speed.samples_per_second",
        || {
            format!(
                "at {} microseconds a step that would be {samples:.1} samples a step, not {most}",
                speed.step_micros
            )
        },
        MEASURE_AGAIN,
    );
    let Some(tokens) = speed.tokens_per_second else { return };
    let Some(scenario) = scenario else { return };
    let input = &scenario.input;
    let longest = [input.seq, input.target_seq, input.max_new_tokens].into_iter().flatten();
    let longest = longest.fold(0, u64::saturating_add);
    let ratio = tokens / speed.samples_per_second;
    problems.unless(
        ratio >= 1.0 - ROUNDING && ratio <= longest as f64 * (1.0 + ROUNDING),
        "speed.tokens_per_second",
        || format!("that would be {ratio:.1} tokens a sample, where the scenario has {longest}"),
        "leave it out where a sample is no sequence",
    );
}
