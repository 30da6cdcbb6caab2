//! A record for the tests.

use plimsoll_core::estimate::{Parameters, PhaseName};
use plimsoll_core::measurement::{
    Allocator, Attempt, DeviceKind, MeasuredDevice, MeasuredPeak, MeasuredPhase, MeasuredSoftware, MeasuredStep,
    Outcome, ProcessSource, Range, Sample, Speed,
};
use plimsoll_core::{Bytes, Measurement, Scenario};
use serde_json::json;

/// A small GPT-2 on a laptop's card.
pub fn record() -> Measurement {
    let scenario = json!({ "model": { "catalog": "gpt2" }, "input": { "batch": 2, "seq": 128 } });
    let scenario = Scenario::from_value(&scenario).expect("a scenario").to_value();
    let phase = |name, step, micro_batch, peak: u64, end: u64, micros| MeasuredPhase {
        attempt: 0,
        name,
        step,
        micro_batch,
        peak_allocated: Some(Bytes::new(peak)),
        peak_reserved: Some(Bytes::new(peak + 4096)),
        end_allocated: Some(Bytes::new(end)),
        end_reserved: Some(Bytes::new(peak + 4096)),
        micros,
    };
    let step =
        |step, micros, loss| MeasuredStep { attempt: 0, step, micros, loss: Some(loss), scale: None, skipped: false };
    Measurement {
        schema: 1,
        plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
        taken: "2026-11-20".to_owned(),
        scenario,
        software: MeasuredSoftware {
            torch: "2.11.0".to_owned(),
            python: "3.12.3".to_owned(),
            transformers: Some("5.17.0".to_owned()),
            os: "linux".to_owned(),
            ..MeasuredSoftware::default()
        },
        device: MeasuredDevice {
            kind: DeviceKind::Cuda,
            name: "NVIDIA GeForce RTX 5070 Ti Laptop GPU".to_owned(),
            gpu: Some("rtx-5070-ti-laptop".to_owned()),
            total: Bytes::from_mib(12_227),
            reserved: Some(Bytes::from_mib(300)),
            used_before: Some(Bytes::from_mib(400)),
            capability: Some("12.0".to_owned()),
            driver: Some("580.95".to_owned()),
            hollow: false,
        },
        allocator: Allocator { conf: None, limit: None },
        parameters: Some(Parameters { total: 124_439_808, trainable: 124_439_808 }),
        attempts: vec![Attempt { batch: 2, accumulation: 1, outcome: Outcome::Finished, steps: 3 }],
        peak: MeasuredPeak {
            allocated: Some(Bytes::new(2_500_000_000)),
            reserved: Some(Bytes::new(2_600_000_000)),
            process: Some(Bytes::new(2_900_000_000)),
            process_source: Some(ProcessSource::NvmlProcess),
        },
        phases: vec![
            phase(PhaseName::Load, None, None, 497_759_232, 497_759_232, 120_000),
            phase(PhaseName::Forward, Some(1), Some(1), 1_500_000_000, 1_400_000_000, 9_000),
            phase(PhaseName::Backward, Some(1), Some(1), 2_500_000_000, 1_000_000_000, 17_000),
        ],
        steps: vec![step(1, 90_000, 10.9), step(2, 30_000, 10.8), step(3, 30_500, 10.700_000_000_000_1)],
        speed: Some(Speed {
            step_micros: 30_000,
            samples_per_second: 66.666_666_666_666_67,
            tokens_per_second: Some(8_533.333_333_333_334),
        }),
        utilization: Some(Range { mean: 80, most: 99 }),
        power: None,
        samples: vec![Sample { at: 10_000, process: Some(Bytes::from_mib(500)), ..Sample::default() }],
        events: Vec::new(),
        ranks: Vec::new(),
        estimate: None,
    }
}
