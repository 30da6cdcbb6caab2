//! A record made from an estimate says that everything agrees; one that is off says where it begins.

use plimsoll_core::estimate::{Estimate, PhaseName, Run};
use plimsoll_core::measurement::{
    Allocator, Attempt, DeviceKind, Event, EventKind, MeasuredDevice, MeasuredPeak, MeasuredPhase, MeasuredSoftware,
    MeasuredStep, Outcome, ProcessSource, Range, SCHEMA, Speed,
};
use plimsoll_core::{Bytes, Measurement, Scenario};
use serde_json::json;

use super::report;
use crate::scenario::Asked;
use crate::session::as_measured;
use crate::view::Paint;

fn scenario() -> Scenario {
    Scenario::from_value(&json!({
        "model": { "catalog": "gpt2" },
        "input": { "batch": 4, "seq": 512 },
        "training": { "precision": "fp16-amp", "accumulation": 2 },
        "device": { "gpu": "rtx-5070" },
    }))
    .unwrap()
}

fn empty() -> Measurement {
    Measurement {
        schema: SCHEMA,
        plimsoll: "0.1.0".to_owned(),
        taken: "2026-11-20".to_owned(),
        scenario: scenario().to_value(),
        software: MeasuredSoftware {
            torch: "2.11.0+cu130".to_owned(),
            python: "3.12.3".to_owned(),
            transformers: Some("5.17.0".to_owned()),
            cuda: Some("13.0".to_owned()),
            os: "linux".to_owned(),
            ..MeasuredSoftware::default()
        },
        device: MeasuredDevice {
            kind: DeviceKind::Cuda,
            name: "NVIDIA GeForce RTX 5070".to_owned(),
            gpu: Some("rtx-5070".to_owned()),
            total: Bytes::from_mib(12_227),
            reserved: Some(Bytes::from_mib(325)),
            used_before: Some(Bytes::from_mib(2)),
            capability: Some("12.0".to_owned()),
            driver: Some("580.65.06".to_owned()),
            hollow: false,
        },
        allocator: Allocator::default(),
        parameters: None,
        attempts: vec![Attempt { batch: 4, accumulation: 2, outcome: Outcome::Finished, steps: 3 }],
        peak: MeasuredPeak::default(),
        phases: Vec::new(),
        steps: Vec::new(),
        speed: None,
        utilization: None,
        power: None,
        samples: Vec::new(),
        events: Vec::new(),
        ranks: Vec::new(),
        estimate: None,
    }
}

/// A record of a card that does what the engine says.
fn exact() -> Measurement {
    let mut record = empty();
    let scenario = as_measured(&scenario(), &record.software, &record.device, None);
    let Estimate { peak, phases, parameters, .. } = Run::new(&scenario).unwrap().into_estimate();
    record.parameters = Some(parameters);
    record.peak = MeasuredPeak {
        allocated: Some(peak.allocated),
        reserved: Some(peak.reserved),
        process: Some(peak.process),
        process_source: Some(ProcessSource::NvmlProcess),
    };
    record.phases = phases
        .iter()
        .map(|p| MeasuredPhase {
            attempt: 0,
            name: p.name,
            // Step 2 is the steady one; here it was the third.
            step: p.step.map(|step| if step == 2 { 3 } else { 1 }),
            micro_batch: p.micro_batch,
            peak_allocated: Some(p.peak_allocated),
            peak_reserved: Some(p.peak_reserved),
            end_allocated: Some(p.end_allocated),
            end_reserved: Some(p.end_reserved),
            micros: 1000,
        })
        .collect();
    record.steps = (1..=3)
        .map(|step| MeasuredStep {
            attempt: 0,
            step,
            micros: 200_000,
            loss: Some(11.0),
            scale: Some(32_768.0),
            skipped: step == 1,
        })
        .collect();
    record.speed = Some(Speed { step_micros: 123_400, samples_per_second: 64.8, tokens_per_second: Some(33_192.0) });
    record.utilization = Some(Range { mean: 93, most: 99 });
    record.power = Some(Range { mean: 201_499, most: 250_500 });
    record
}

fn text(record: &Measurement) -> String {
    let text = report(record, &Asked { scenario: scenario(), names_gpu: true }, Paint::with_colour(false));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn what_agrees_is_said_to_agree() {
    let text = text(&exact());
    says(
        &text,
        &[
            "GPT-2 (124M) on NVIDIA GeForce RTX 5070",
            "torch 2.11.0+cu130, CUDA 13.0, transformers 5.17.0, Python 3.12.3, driver",
            "MEASURED   3 steps of micro-batch 4, accumulated 2 times",
            "+0 B    +0.0 %",
            "tensors              +0 B  within 1 % in every phase",
            "fragmentation        +0 B  within 1 % in every phase",
            "Step          123.4 ms (step 1: 200.0 ms)",
            // Two micro-batches; each phase took as long as any other.
            "of it         input 22 %, forward 22 %, backward 22 %, clip 11 %, optimizer\n                11 %, zero grad 11 %",
            "Sample        15.4 ms",
            "Throughput    64.8 samples/s, 33,192 tokens/s",
            "Utilisation   93 %, most 99 %",
            "Power         201 W, most 251 W",
            "GradScaler    scale 32768, 1 of 3 steps skipped",
        ],
    );
    assert!(!text.contains("Events") && !text.contains("catalog"), "{text}");
}

/// A record of a card that answers as the engine says.
fn answered(tokens: u64) -> (Measurement, Asked) {
    let scenario = Scenario::from_value(&json!({
        "model": { "catalog": "llama-3.2-1b" },
        "input": { "batch": 4, "seq": 512, "max_new_tokens": tokens },
        "training": { "mode": "inference", "precision": "bf16" },
        "device": { "gpu": "rtx-5070" },
    }))
    .unwrap();
    let mut record = Measurement { scenario: scenario.to_value(), ..empty() };
    record.attempts = vec![Attempt { batch: 4, accumulation: 1, outcome: Outcome::Finished, steps: 3 }];
    let Estimate { peak, phases, .. } =
        Run::new(&as_measured(&scenario, &record.software, &record.device, None)).unwrap().into_estimate();
    record.peak = MeasuredPeak {
        allocated: Some(peak.allocated),
        reserved: Some(peak.reserved),
        process: Some(peak.process),
        process_source: Some(ProcessSource::NvmlProcess),
    };
    let measured = |p: &plimsoll_core::estimate::Phase, step| MeasuredPhase {
        attempt: 0,
        name: p.name,
        step: p.step.map(|_| step),
        micro_batch: p.micro_batch,
        peak_allocated: Some(p.peak_allocated),
        // Later generations find the first one's cache.
        peak_reserved: Some(if step == 1 { p.peak_reserved } else { peak.reserved }),
        end_allocated: Some(p.end_allocated),
        end_reserved: Some(if step == 1 { p.end_reserved } else { peak.reserved }),
        micros: 64_000,
    };
    record.phases = phases.iter().filter(|p| p.step != Some(2)).map(|p| measured(p, 1)).collect();
    record.phases.extend(phases.iter().filter(|p| p.step == Some(2)).map(|p| measured(p, 3)));
    let step = |step| MeasuredStep { attempt: 0, step, micros: 128_000, loss: None, scale: None, skipped: false };
    record.steps = (1..=3).map(step).collect();
    record.speed = Some(Speed { step_micros: 128_000, samples_per_second: 31.25, tokens_per_second: Some(1031.25) });
    (record, Asked { scenario, names_gpu: true })
}

#[test]
fn a_generation_stands_beside_its_estimate_phase_by_phase() {
    let (mut record, asked) = answered(33);
    assert_eq!(record.validate(), []);
    let say = |record: &Measurement| report(record, &asked, Paint::with_colour(false));
    let text = say(&record);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    says(
        &text,
        &[
            "Llama 3.2 1B on NVIDIA GeForce RTX 5070",
            "inference, batch 4 x 512 tokens, 33 new tokens, bf16",
            "MEASURED   3 generations of batch 4",
            "+0 B    +0.0 %",
            "     generation 1",
            "   last generation\n",
            "tensors              +0 B  within 1 % in every phase",
            "fragmentation        +0 B  within 1 % in every phase",
            "Generation    128.0 ms (generation 1: 128.0 ms)",
            "Token         2.0 ms each after the first",
            "1,031 new tokens/s",
        ],
    );
    let line = |name: &str| text.lines().find(|line| line.starts_with(&format!("  {name} "))).unwrap();
    // Measured, predicted, apart; of the first generation and of the last.
    let figures = "2.38 GiB    2.38 GiB   +0.0 %";
    assert!(line("decode").ends_with(&format!("{figures}     {figures}")), "{text}");
    for word in ["step", "optimizer", "micro-batch", "trained", "Loss", "GradScaler"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    for phase in record.phases.iter_mut().filter(|p| p.name == PhaseName::Prefill) {
        phase.peak_allocated = phase.peak_allocated.map(|b| b + Bytes::from_mib(200));
    }
    record.peak.allocated = record.peak.allocated.map(|b| b + Bytes::from_mib(200));
    says(&say(&record), &["tensors        +200.0 MiB  from prefill: +200.0 MiB,"]);
    // Of a generation that is counted once this is said.
    assert!(!text.contains("The prediction is of one"), "{text}");
    let (record, asked) = answered(2000);
    says(&report(&record, &asked, Paint::with_colour(false)), &["The prediction is of one generation, the first"]);
}

#[test]
fn a_difference_is_traced_to_the_phase_where_it_begins() {
    let mut record = exact();
    let more = Bytes::from_mib(100);
    for phase in &mut record.phases {
        if phase.name == PhaseName::Optimizer && phase.step == Some(1) || phase.step == Some(3) {
            phase.peak_allocated = phase.peak_allocated.map(|b| b + more);
            phase.peak_reserved = phase.peak_reserved.map(|b| b + more);
        }
    }
    record.peak.allocated = record.peak.allocated.map(|b| b + more);
    record.peak.reserved = record.peak.reserved.map(|b| b + more);
    record.peak.process = record.peak.process.map(|b| b + more + Bytes::from_mib(50));
    says(
        &text(&record),
        &[
            "+104,857,600 B",
            "+157,286,400 B",
            "tensors        +100.0 MiB  from optimizer, step 1: +100.0 MiB, +4.1 %",
            "fragmentation        +0 B  within 1 % in every phase",
            "context         +50.0 MiB",
        ],
    );
}

#[test]
fn another_attempt_has_another_prediction() {
    let mut record = exact();
    record.attempts = vec![
        Attempt { batch: 8, accumulation: 1, outcome: Outcome::OutOfMemory, steps: 0 },
        Attempt { batch: 4, accumulation: 2, outcome: Outcome::Finished, steps: 3 },
    ];
    for phase in record.phases.iter_mut().filter(|p| p.name != PhaseName::Load) {
        phase.attempt = 1;
    }
    for step in &mut record.steps {
        step.attempt = 1;
    }
    record.events = vec![Event { at: 1_500_000, kind: EventKind::OutOfMemory, message: "out of memory".to_owned() }];
    says(&text(&record), &["+0 B    +0.0 %", "tensors              +0 B  within 1 %", "     1.5 s  out of memory"]);
}

#[test]
fn what_did_not_fit_is_not_explained() {
    let mut record = exact();
    record.attempts = vec![Attempt { batch: 1, accumulation: 8, outcome: Outcome::Limit, steps: 0 }];
    record.speed = None;
    let text = text(&record);
    says(&text, &["DID NOT FIT   not even one sample at a time: the limit was hit"]);
    assert!(!text.contains("Where the difference"), "{text}");
}

#[test]
fn the_card_that_is_there_is_not_the_one_that_was_named() {
    let mut record = exact();
    record.device.gpu = Some("rtx-5080".to_owned());
    record.software.torch = "2.31.0".to_owned();
    record.allocator.conf = Some("expandable_segments:True".to_owned());
    says(
        &text(&record),
        &[
            "The scenario names rtx-5070; measured and predicted on rtx-5080",
            "The allocator's settings were changed",
            "the rules of torch 2.31 are not known",
        ],
    );
}

#[test]
fn stopped_and_failed() {
    let mut record = empty();
    record.attempts = vec![Attempt { batch: 4, accumulation: 2, outcome: Outcome::Interrupted, steps: 1 }];
    says(&text(&record), &["STOPPED   after 1 step of micro-batch 4, accumulated 2 times"]);
    record.attempts[0].outcome = Outcome::Failed;
    says(&text(&record), &["FAILED   after 1 step"]);
    record.attempts.clear();
    says(&text(&record), &["FAILED   before anything ran"]);
}
