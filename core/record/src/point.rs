//! A record in one line: what a list shows, a scatter draws and a table groups by.

use plimsoll_estimate::Run;
use plimsoll_ground::{Bytes, Error, Result};
use plimsoll_scenario::{Levers, Mode, ModelSource, Quantization, Scenario, at};
use serde::{Deserialize, Serialize};

use super::{DeviceKind, Measurement, Outcome, ProcessSource};

/// Measured or estimated peaks, in bytes; absent where the device does not tell the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peaks {
    /// `torch.cuda.max_memory_allocated`.
    pub allocated: Option<Bytes>,
    /// `torch.cuda.max_memory_reserved`.
    pub reserved: Option<Bytes>,
    /// What the process held.
    pub process: Option<Bytes>,
}

/// Which of the three peaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// [`Peaks::allocated`].
    Allocated,
    /// [`Peaks::reserved`].
    Reserved,
    /// [`Peaks::process`].
    Process,
}

impl Metric {
    /// From the innermost to the outermost.
    pub const ALL: [Self; 3] = [Self::Allocated, Self::Reserved, Self::Process];

    /// `allocated`, `reserved`, `process`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Reserved => "reserved",
            Self::Process => "process",
        }
    }
}

impl Peaks {
    /// The peak that `metric` names.
    pub const fn get(self, metric: Metric) -> Option<Bytes> {
        match metric {
            Metric::Allocated => self.allocated,
            Metric::Reserved => self.reserved,
            Metric::Process => self.process,
        }
    }
}

/// Whether a record counts in comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It does.
    #[default]
    Accepted,
    /// It contradicts its neighbours or the estimate; [`MeasurementPoint::reasons`] say how. Shown, not counted.
    Quarantined,
}

/// A record in one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasurementPoint {
    /// [`Measurement::content_id`].
    pub id: String,
    /// The day it was taken, UTC.
    pub taken: String,
    /// The day a server received it, UTC; absent where no server did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<String>,
    /// Whether it counts.
    #[serde(default)]
    pub standing: Standing,
    /// Why it does not, each a sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// `cuda`, `mps`, `cpu`.
    pub device_kind: DeviceKind,
    /// As the driver names it.
    pub device: String,
    /// Its id in the catalog.
    pub gpu: Option<String>,
    /// `torch.__version__`.
    pub torch: String,
    /// `llama`, `gpt2`, `nbeats`, ...: the `model_type`, or the family of our own.
    pub family: String,
    /// The catalog's id, where the scenario names one; else the family once more.
    pub model: String,
    /// `causal-lm`, ...
    pub task: String,
    /// Samples in a micro-batch, as it ran in the end.
    pub batch: u64,
    /// Tokens of a sample.
    pub seq: Option<u64>,
    /// Micro-batches in a step, as it ran in the end.
    pub accumulation: u64,
    /// `train`, `inference`.
    pub mode: String,
    /// `fp32`, `bf16-amp`, ...
    pub precision: String,
    /// `adamw`, ...
    pub optimizer: String,
    /// `foreach`, ...
    pub optimizer_impl: String,
    /// `none`, `full`.
    pub checkpointing: String,
    /// `sdpa`, `eager`.
    pub attention: String,
    /// Rank of the adapters; absent without.
    pub lora: Option<u64>,
    /// `int8`, `nf4`, `nf4-double`; absent where nothing is quantized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// False where a quantized base was trained without peft's `prepare_model_for_kbit_training`; absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_kbit: Option<bool>,
    /// Every lever that is not at its default, by its name in a link; absent in lines from before they were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub levers: Option<Levers>,
    /// Numbers in the model.
    pub parameters: Option<u64>,
    /// Whether the run went to its end, so that its peaks are those of whole steps.
    pub finished: bool,
    /// What was measured.
    pub measured: Peaks,
    /// Where `measured.process` was read.
    pub process_source: Option<ProcessSource>,
    /// The estimate of what ran, by the engine that made this line; absent when it does not know the model.
    pub estimated: Option<Peaks>,
}

impl Measurement {
    /// The estimate of what ran in the end, by today's engine: the one within the record is that of the day it was
    /// taken, and of what was asked.
    ///
    /// # Errors
    /// When the engine does not estimate the scenario, or estimates another run in its place.
    pub fn estimated_now(&self) -> Result<Peaks> {
        let scenario = self.as_run()?;
        if scenario.compiles_unmodelled() {
            let problem = "torch.compile is not modelled, and the run without it is another";
            return Err(Error::new(at::training::compile, problem, "compare it with other compiled runs"));
        }
        let run = Run::new(&scenario)?;
        let peak = &run.estimate().peak;
        Ok(Peaks { allocated: Some(peak.allocated), reserved: Some(peak.reserved), process: Some(peak.process) })
    }

    /// The record in one line, beside the estimate of today's engine.
    ///
    /// # Errors
    /// When its scenario cannot be read; a record that [`Measurement::validate`] finds nothing wrong with has one.
    pub fn point(&self) -> Result<MeasurementPoint> {
        let scenario = self.as_run()?;
        Ok(self.line(&scenario, self.estimated_now().ok()))
    }

    pub(super) fn line(&self, scenario: &Scenario, estimated: Option<Peaks>) -> MeasurementPoint {
        let training = &scenario.training;
        let (family, model) = names(scenario);
        let quantization = Some(training.quantization).filter(|word| *word != Quantization::None);
        MeasurementPoint {
            id: self.content_id(),
            taken: self.taken.clone(),
            received: None,
            standing: Standing::Accepted,
            reasons: Vec::new(),
            device_kind: self.device.kind,
            device: self.device.name.clone(),
            gpu: self.device.gpu.clone(),
            torch: self.software.torch.clone(),
            family,
            model,
            task: scenario.model.task.as_str().to_owned(),
            batch: scenario.input.batch,
            seq: scenario.input.seq,
            accumulation: training.accumulation,
            mode: training.mode.as_str().to_owned(),
            precision: training.precision.as_str().to_owned(),
            optimizer: training.optimizer.as_str().to_owned(),
            optimizer_impl: training.optimizer_impl.as_str().to_owned(),
            checkpointing: training.checkpointing.as_str().to_owned(),
            attention: training.attention.as_str().to_owned(),
            lora: training.lora.as_ref().map(|lora| lora.rank),
            quantization: quantization.map(|word| word.as_str().to_owned()),
            prepare_kbit: (!training.prepare_kbit).then_some(false),
            levers: Some(Levers::of(scenario)),
            parameters: self.parameters.as_ref().map(|p| p.total),
            finished: self.finished(),
            measured: Peaks {
                allocated: self.peak.allocated,
                reserved: self.peak.reserved,
                process: self.peak.process,
            },
            process_source: self.peak.process_source,
            estimated,
        }
    }

    /// How the attempt that the record is about ended; `None` when nothing was tried.
    pub fn outcome(&self) -> Option<Outcome> {
        self.attempts.get(self.subject()?).map(|attempt| attempt.outcome)
    }
}

/// Architecture and model, as a point names them.
pub(super) fn names(scenario: &Scenario) -> (String, String) {
    let source = &scenario.model.source;
    let family = match source {
        ModelSource::Family { name, .. } => name.clone(),
        ModelSource::Hull(_) => "hull".to_owned(),
        other => other.model_type().unwrap_or_default().to_owned(),
    };
    let model = match source {
        ModelSource::Catalog(id) => id.clone(),
        ModelSource::Hull(hull) => hull.hash().to_owned(),
        _ => family.clone(),
    };
    (family, model)
}

impl MeasurementPoint {
    /// The signed error of the estimate, `(estimated - measured) / measured`, where the two are of the same thing: a
    /// whole run on an accelerator. A processor's figure is resident memory with Python in it, which nobody estimates.
    pub fn error(&self, metric: Metric) -> Option<f64> {
        if !self.finished || self.device_kind == DeviceKind::Cpu {
            return None;
        }
        let measured = self.measured.get(metric).filter(|bytes| *bytes > Bytes::ZERO)?.get();
        let estimated = self.estimated?.get(metric)?.get();
        Some((estimated as f64 - measured as f64) / measured as f64)
    }

    /// Whether nothing was trained.
    pub fn infers(&self) -> bool {
        self.mode == Mode::Inference.as_str()
    }
}

/// `2.11` of `2.11.0+cu130`: what rules hang on.
pub(super) fn minor(version: &str) -> String {
    let mut parts = version.split(['.', '+']);
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => format!("{major}.{minor}"),
        _ => version.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EXAMPLE;
    use crate::Facet;

    fn example() -> Measurement {
        Measurement::from_json(EXAMPLE).unwrap()
    }

    #[test]
    fn a_line_tells_what_ran_in_the_end() {
        let point = example().point().unwrap();
        assert_eq!((point.model.as_str(), point.family.as_str()), ("gpt2", "gpt2"));
        assert_eq!((point.batch, point.accumulation, point.seq), (8, 4, Some(512)));
        assert!(point.finished && point.estimated.is_some() && point.error(Metric::Allocated).is_some());
        assert_eq!(Facet::Torch.of(&point), "2.11");
        assert_eq!(Facet::Gpu.of(&point), "Example card");
        let text = serde_json::to_string(&point).unwrap();
        assert_eq!(serde_json::from_str::<MeasurementPoint>(&text).unwrap(), point);
    }

    #[test]
    fn what_is_not_the_same_thing_is_not_compared() {
        let mut point = example().point().unwrap();
        point.device_kind = DeviceKind::Cpu;
        assert_eq!(point.error(Metric::Process), None);
        point.device_kind = DeviceKind::Cuda;
        point.finished = false;
        assert_eq!(point.error(Metric::Allocated), None);
    }
}
