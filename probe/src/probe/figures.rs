//! What a record says in numbers: its peaks beside those of the estimate, and how fast it went.

use plimsoll_core::estimate::Run;
use plimsoll_core::measurement::{DeviceKind, EventKind, Outcome};
use plimsoll_core::{Bytes, Measurement, Scenario};
use serde_json::{Value, json};

use crate::session::{as_measured, subject, with_shape};

/// The highest points, by three measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// What PyTorch's allocator had handed out.
    pub allocated: Option<Bytes>,
    /// What it had taken from the driver.
    pub reserved: Option<Bytes>,
    /// What the process held.
    pub process: Option<Bytes>,
}

impl Peaks {
    /// With the names people read.
    pub const fn rows(self) -> [(&'static str, Option<Bytes>); 3] {
        [("allocated", self.allocated), ("reserved", self.reserved), ("process", self.process)]
    }

    fn to_value(self) -> Value {
        json!({ "allocated": self.allocated, "reserved": self.reserved, "process": self.process })
    }
}

/// A record in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Samples in a micro-batch, of the attempt the figures are of.
    pub batch: u64,
    /// Micro-batches in its step.
    pub accumulation: u64,
    /// How it ended; `None` when the worker did not get as far as an attempt.
    pub outcome: Option<Outcome>,
    /// What it took.
    pub measured: Peaks,
    /// What the estimate says, where it speaks of the same: on a CUDA card, of a model it knows, when the attempt ran.
    pub predicted: Option<Peaks>,
    /// Microseconds for one sample.
    pub sample_micros: Option<f64>,
    /// Mean utilisation in percent.
    pub utilization: Option<u64>,
    /// Why the worker failed.
    pub failure: Option<String>,
}

impl Figures {
    /// Reads a record.
    pub fn of(record: &Measurement) -> Self {
        let attempt = subject(record).map(|(_, attempt)| attempt);
        let outcome = attempt.map(|attempt| attempt.outcome);
        let peak = &record.peak;
        let failure = record.events.iter().rev().find(|event| event.kind == EventKind::Failed);
        Self {
            batch: attempt.map_or(0, |attempt| attempt.batch),
            accumulation: attempt.map_or(0, |attempt| attempt.accumulation),
            outcome,
            measured: Peaks { allocated: peak.allocated, reserved: peak.reserved, process: peak.process },
            predicted: predicted(record),
            sample_micros: record.speed.map(|s| 1e6 / s.samples_per_second).filter(|micros| micros.is_finite()),
            utilization: record.utilization.map(|range| range.mean),
            failure: failure.map(|event| event.message.clone()),
        }
    }

    /// Whether it ran to its end.
    pub fn finished(&self) -> bool {
        self.outcome == Some(Outcome::Finished)
    }

    /// Measured and predicted, where both are known and it ran to its end.
    pub fn pairs(&self) -> Vec<(&'static str, Bytes, Bytes)> {
        let Some(predicted) = self.predicted.filter(|_| self.finished()) else { return Vec::new() };
        let both = self.measured.rows().into_iter().zip(predicted.rows());
        both.filter_map(|((name, measured), (_, predicted))| Some((name, measured?, predicted?))).collect()
    }

    /// For `--format json`.
    pub fn to_value(&self) -> Value {
        json!({
            "batch": self.batch, "accumulation": self.accumulation, "outcome": self.outcome,
            "measured": self.measured.to_value(), "predicted": self.predicted.map(Peaks::to_value),
            "sample_micros": self.sample_micros, "utilization": self.utilization, "failure": self.failure,
        })
    }
}

/// By how much what was measured exceeds what was predicted, in percent of what was measured.
pub fn difference(measured: Bytes, predicted: Bytes) -> f64 {
    if measured == Bytes::ZERO {
        return 0.0;
    }
    (measured.get() as f64 - predicted.get() as f64) / measured.get() as f64 * 100.0
}

/// What the estimate says about the attempt the record's peaks are of.
fn predicted(record: &Measurement) -> Option<Peaks> {
    let (_, attempt) = subject(record)?;
    if record.device.kind != DeviceKind::Cuda {
        return None;
    }
    let of_attempt = |estimate: &&Value| {
        estimate["scenario"]["input"]["batch"] == attempt.batch
            && estimate["scenario"]["training"]["accumulation"] == attempt.accumulation
    };
    if let Some(estimate) = record.estimate.as_ref().filter(of_attempt) {
        let size = |key: &str| estimate["peak"][key].as_u64().map(Bytes::new);
        return Some(Peaks { allocated: size("allocated"), reserved: size("reserved"), process: size("process") });
    }
    // The guard changed the micro-batch, or the record has no estimate.
    let scenario = Scenario::from_value_to_measure(&record.scenario).ok()?;
    let scenario = as_measured(&scenario, &record.software, &record.device, record.allocator.limit);
    let scenario = with_shape(&scenario, attempt.batch, attempt.accumulation);
    let run = if record.device.hollow { Run::on_hollow_card(&scenario) } else { Run::new(&scenario) }.ok()?;
    let peak = &run.estimate().peak;
    Some(Peaks { allocated: Some(peak.allocated), reserved: Some(peak.reserved), process: Some(peak.process) })
}

/// An outcome in the words people read.
pub const fn outcome(outcome: Option<Outcome>) -> &'static str {
    match outcome {
        Some(Outcome::Finished) => "fits",
        Some(Outcome::OutOfMemory) => "out of memory",
        Some(Outcome::Limit) => "over the limit",
        Some(Outcome::Interrupted) => "interrupted",
        Some(Outcome::Failed) | None => "failed",
    }
}

/// A size in a column, or a dash.
pub fn size(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string())
}

/// A duration of a sample: `3.12 ms`.
pub fn duration(micros: Option<f64>) -> String {
    match micros {
        None => "-".to_owned(),
        Some(micros) if micros < 1000.0 => format!("{micros:.0} us"),
        Some(micros) if micros < 1e6 => format!("{:.2} ms", micros / 1e3),
        Some(micros) => format!("{:.2} s", micros / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::sample;

    #[test]
    fn the_estimate_is_of_the_attempt() {
        let mut record = sample::record();
        let asked = Figures::of(&record).predicted.unwrap();
        // The guard changed the micro-batch: the engine is asked again.
        record.attempts[0].batch = 64;
        let raised = Figures::of(&record).predicted.unwrap();
        assert!(raised.allocated > asked.allocated);
        let estimate = json!({
            "scenario": { "input": { "batch": 64 }, "training": { "accumulation": 1 } },
            "peak": { "allocated": 1, "reserved": 2, "process": 3 },
        });
        record.estimate = Some(estimate);
        assert_eq!(Figures::of(&record).predicted.unwrap().allocated, Some(Bytes::new(1)));
        record.device.kind = DeviceKind::Cpu;
        assert_eq!(Figures::of(&record).predicted, None);
    }

    #[test]
    fn only_what_ran_is_compared() {
        let mut record = sample::record();
        assert_eq!(Figures::of(&record).pairs().len(), 3);
        record.peak.reserved = None;
        assert_eq!(Figures::of(&record).pairs().len(), 2);
        record.attempts[0].outcome = Outcome::OutOfMemory;
        assert!(Figures::of(&record).pairs().is_empty());
    }

    #[test]
    fn differences_and_durations() {
        assert!((difference(Bytes::new(200), Bytes::new(190)) - 5.0).abs() < 1e-9);
        assert!((difference(Bytes::ZERO, Bytes::new(1))).abs() < 1e-9);
        assert_eq!(duration(Some(3120.0)), "3.12 ms");
        assert_eq!(duration(Some(999.0)), "999 us");
        assert_eq!(duration(None), "-");
    }
}
