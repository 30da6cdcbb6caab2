//! Records of a model that answered.

use plimsoll_ledger::PhaseName;
use serde_json::json;

use super::*;

/// The example, as if the model had answered: two generations.
fn answered() -> Measurement {
    let mut record = example();
    record.scenario = plimsoll_scenario::Scenario::from_value(&json!({
        "model": { "catalog": "gpt2" }, "input": { "batch": 8, "seq": 512, "max_new_tokens": 16 },
        "training": { "mode": "inference", "precision": "bf16" },
    }))
    .unwrap()
    .to_value();
    record.estimate = None;
    record.events.clear();
    record.attempts.truncate(1);
    record.attempts[0] = Attempt { batch: 8, accumulation: 1, outcome: Outcome::Finished, steps: 2 };
    let load = record.phases[0].clone();
    let phase = |name, step, micro_batch| MeasuredPhase { name, step: Some(step), micro_batch, ..load.clone() };
    record.phases = vec![load.clone()];
    for step in 1..=2 {
        record.phases.push(phase(PhaseName::Input, step, Some(1)));
        record.phases.push(phase(PhaseName::Prefill, step, None));
        record.phases.push(phase(PhaseName::Decode, step, None));
    }
    record.peak.allocated = load.peak_allocated;
    record.peak.reserved = load.peak_reserved;
    let step = |step| MeasuredStep { attempt: 0, step, micros: 1000, loss: None, scale: None, skipped: false };
    record.steps = vec![step(1), step(2)];
    record.speed = Some(Speed { step_micros: 1000, samples_per_second: 8000.0, tokens_per_second: Some(128_000.0) });
    record
}

#[test]
fn a_generation_has_its_own_loop() {
    assert_eq!(faults(&answered()), []);
    let keys = |change: fn(&mut Measurement)| {
        let mut record = answered();
        change(&mut record);
        record.validate().into_iter().map(|error| error.key).collect::<Vec<_>>()
    };
    assert_eq!(keys(|r| r.phases.swap(2, 3)), ["phases[3].name"]);
    assert_eq!(keys(|r| r.phases[2].micro_batch = Some(1))[0], "phases[2].micro_batch");
    assert_eq!(keys(|r| r.phases[3].name = PhaseName::Optimizer)[0], "phases[3].name");
    assert_eq!(keys(|r| r.steps[1].loss = Some(2.0)), ["steps[1].loss"]);
    assert_eq!(keys(|r| r.speed.as_mut().unwrap().tokens_per_second = Some(1e9)), ["speed.tokens_per_second"]);
    // A smaller batch is a smaller batch: nothing makes up for it.
    let halved = |accumulation| {
        let mut record = answered();
        record.attempts.insert(0, Attempt { batch: 8, accumulation: 1, outcome: Outcome::OutOfMemory, steps: 0 });
        record.attempts[1] = Attempt { batch: 4, accumulation, ..record.attempts[1].clone() };
        for phase in record.phases.iter_mut().skip(1) {
            phase.attempt = 1;
        }
        for step in &mut record.steps {
            step.attempt = 1;
        }
        record.speed = None;
        record
    };
    assert_eq!(faults(&halved(1)), []);
    assert_eq!(halved(1).as_run().unwrap().input.batch, 4);
    assert_eq!(halved(2).validate()[0].key, "attempts[1].accumulation");
    // And training has none of it.
    let trained = |change: fn(&mut Measurement)| {
        let mut record = example();
        change(&mut record);
        record.validate().into_iter().map(|error| error.key).collect::<Vec<_>>()
    };
    assert_eq!(trained(|r| r.phases[5].name = PhaseName::Prefill)[0], "phases[5].name");
}
