//! The record's shape.

use plimsoll_estimate::{Parameters, PhaseName};
use plimsoll_ground::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rank::MeasuredRank;

/// One scenario, measured once. Sizes in bytes, durations in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// Format version: 1.
    pub schema: u32,
    /// Version of Plimsoll that measured.
    pub plimsoll: String,
    /// The day it was taken, UTC, `2026-11-20`.
    pub taken: String,
    /// The scenario that was measured, every default filled in.
    pub scenario: Value,
    /// What ran it.
    pub software: MeasuredSoftware,
    /// Where it ran.
    pub device: MeasuredDevice,
    /// How PyTorch's allocator was set.
    pub allocator: Allocator,
    /// Numbers in the model; absent when the run ended before the model stood.
    pub parameters: Option<Parameters>,
    /// In order. `peak`, `speed` and the steady state are about the last one that finished, or the last one when none
    /// did ([`Measurement::subject`]).
    pub attempts: Vec<Attempt>,
    /// The highest points of the last attempt that finished, or of the whole run when none did.
    pub peak: MeasuredPeak,
    /// Every phase of the first step of each attempt and of its last one, in order.
    pub phases: Vec<MeasuredPhase>,
    /// Every step, in order: an optimizer step; in inference a run from fresh inputs to what comes out, a whole generation
    /// or a single forward.
    pub steps: Vec<MeasuredStep>,
    /// How fast the steady state was; absent when fewer than two steps finished.
    pub speed: Option<Speed>,
    /// GPU utilisation in percent over the steady state.
    pub utilization: Option<Range>,
    /// Board power in milliwatts over the steady state.
    pub power: Option<Range>,
    /// Thinned samples of the whole run.
    pub samples: Vec<Sample>,
    /// What happened besides.
    pub events: Vec<Event>,
    /// Of a run on several cards every process, by its rank; absent on one. Everything above is then of all of them: memory
    /// is that of the highest rank, figure by figure; times and samples are those of the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<MeasuredRank>,
    /// The estimate of the same scenario, as `plimsoll estimate --format json` prints it; absent when the engine does not
    /// know the model.
    pub estimate: Option<Value>,
}

/// What ran the scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasuredSoftware {
    /// `torch.__version__`.
    pub torch: String,
    /// `platform.python_version()`.
    pub python: String,
    /// `transformers.__version__`, where it was used.
    pub transformers: Option<String>,
    /// `peft.__version__`, where it was used.
    pub peft: Option<String>,
    /// `torchvision.__version__`, where it was used.
    pub torchvision: Option<String>,
    /// `bitsandbytes.__version__`, where it was used. Absent otherwise: records from before this key read the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitsandbytes: Option<String>,
    /// `torch.version.cuda`.
    pub cuda: Option<String>,
    /// `torch.version.hip`.
    pub hip: Option<String>,
    /// `torch.backends.cudnn.version()`.
    pub cudnn: Option<u64>,
    /// `linux`, `windows`, `macos`.
    pub os: String,
    /// Whether it ran in WSL.
    pub wsl: bool,
    /// Whether it ran in a container.
    pub container: bool,
}

/// What kind of device the loop ran on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// NVIDIA's CUDA, or AMD's ROCm, which PyTorch calls `cuda` too (`software.hip` tells them apart).
    Cuda,
    /// Apple's Metal.
    Mps,
    /// No accelerator: only process memory is known.
    Cpu,
}

/// Where the scenario ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasuredDevice {
    /// `cuda`, `mps`, `cpu`.
    pub kind: DeviceKind,
    /// As the driver names it (`NVIDIA GeForce RTX 5070 Ti Laptop GPU`); the processor's model on `cpu`.
    pub name: String,
    /// Its id in the catalog, where it could be told.
    pub gpu: Option<String>,
    /// Memory of the card as the driver reports it; of the machine on `cpu`.
    pub total: Bytes,
    /// What the driver keeps for itself (NVML v2 `reserved`).
    pub reserved: Option<Bytes>,
    /// What was in use on the card, by anyone, before the worker started.
    pub used_before: Option<Bytes>,
    /// CUDA compute capability, `12.0`.
    pub capability: Option<String>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// Whether there was no such card: `plimsoll rehearse` stood in for it and kernels did nothing. Such a record says what
    /// PyTorch's allocator did and is no measurement: [`Measurement::validate`] refuses it. Absent on real devices.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hollow: bool,
}

/// How PyTorch's allocator was set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Allocator {
    /// `PYTORCH_ALLOC_CONF` or `PYTORCH_CUDA_ALLOC_CONF`, as the worker found it.
    pub conf: Option<String>,
    /// The hard cap that `--limit` set.
    pub limit: Option<Bytes>,
}

/// One micro-batch size that was tried within the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// Samples in a micro-batch.
    pub batch: u64,
    /// Micro-batches in a step; 1 in inference.
    pub accumulation: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Steps that finished.
    pub steps: u64,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every step ran.
    Finished,
    /// The device had no more memory.
    OutOfMemory,
    /// The hard cap of `--limit` was hit.
    Limit,
    /// Stopped by the user.
    Interrupted,
    /// The worker failed.
    Failed,
}

/// The highest points.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasuredPeak {
    /// `torch.cuda.max_memory_allocated`; absent where the device keeps no such count.
    pub allocated: Option<Bytes>,
    /// `torch.cuda.max_memory_reserved`.
    pub reserved: Option<Bytes>,
    /// What the process held, by `process_source`.
    pub process: Option<Bytes>,
    /// Where `process` comes from.
    pub process_source: Option<ProcessSource>,
}

/// Where the memory of the process was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessSource {
    /// NVML's figure of the worker's own process.
    NvmlProcess,
    /// The card's use less what was in use before: NVML hides the process in containers, WSL and on Windows.
    NvmlDifference,
    /// The kernel's figure of the process on an AMD card (fdinfo).
    AmdgpuProcess,
    /// The AMD card's use less what was in use before.
    AmdgpuDifference,
    /// `torch.mps.driver_allocated_memory`, as the worker reads it.
    Worker,
    /// The process's resident memory, from the operating system.
    Resident,
}

/// One phase of one micro-batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasuredPhase {
    /// Index into [`Measurement::attempts`].
    pub attempt: u32,
    /// Which part of the loop.
    pub name: PhaseName,
    /// Step of the attempt, from 1; `None` for `load`.
    pub step: Option<u64>,
    /// Micro-batch within the step, from 1; `None` where the phase is once per step.
    pub micro_batch: Option<u64>,
    /// Highest allocated within the phase.
    pub peak_allocated: Option<Bytes>,
    /// Highest reserved within the phase.
    pub peak_reserved: Option<Bytes>,
    /// Allocated when the phase ended.
    pub end_allocated: Option<Bytes>,
    /// Reserved when the phase ended.
    pub end_reserved: Option<Bytes>,
    /// How long it took, in microseconds; the device was waited for.
    pub micros: u64,
}

/// One optimizer step, or in inference one generation or forward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasuredStep {
    /// Index into [`Measurement::attempts`].
    pub attempt: u32,
    /// From 1 within the attempt.
    pub step: u64,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Mean loss of its micro-batches; absent when it was not finite, and in inference.
    pub loss: Option<f64>,
    /// GradScaler's scale after it; absent where there is none.
    pub scale: Option<f64>,
    /// Whether GradScaler skipped it because of infinite gradients.
    pub skipped: bool,
}

/// Speed of the steady state: every step but the first of the attempt the record is about.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// Median time of a step, in microseconds.
    pub step_micros: u64,
    /// Samples per second at that pace.
    pub samples_per_second: f64,
    /// Tokens per second at that pace, where a sample is a sequence: those that are read; of a generation those that are
    /// made, the time for the prompt included.
    pub tokens_per_second: Option<f64>,
}

/// Mean and highest of what was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Mean over the samples.
    pub mean: u64,
    /// Highest sample.
    pub most: u64,
}

/// One moment as the orchestrator saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Microseconds since the worker started.
    pub at: u64,
    /// Memory of the process.
    pub process: Option<Bytes>,
    /// Memory in use on the whole card.
    pub device: Option<Bytes>,
    /// GPU utilisation in percent.
    pub utilization: Option<u8>,
    /// Board power in milliwatts.
    pub power: Option<u64>,
    /// Degrees Celsius.
    pub temperature: Option<u8>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Microseconds since the worker started.
    pub at: u64,
    /// What kind of thing.
    pub kind: EventKind,
    /// In words, without paths or names of people and machines.
    pub message: String,
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// 90 % of the limit or of the card was passed.
    Warning,
    /// The device had no more memory.
    OutOfMemory,
    /// The hard cap was hit.
    Limit,
    /// The micro-batch was halved and, in training, the accumulation doubled.
    Halved,
    /// The micro-batch was raised to use the device better.
    Raised,
    /// GradScaler skipped a step, or a loss was not finite.
    Numeric,
    /// Stopped by the user.
    Interrupted,
    /// The worker failed.
    Failed,
    /// Worth knowing.
    Note,
}
