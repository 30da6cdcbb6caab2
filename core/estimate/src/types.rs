//! The estimate's shape: the contract of the design's section 5, and what the planner draws beside it.

use plimsoll_catalog::device::DeviceLimits;
use plimsoll_ground::Bytes;
use plimsoll_ledger::{Parameters, PhaseName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::compiled::Compiled;
use super::convolutions::{AskedCudnn, Convolutions};
use super::falling::Falling;
use super::host::Host;
use super::lag::Lag;
use super::ranks::{Communicator, Role};
use super::work::StepWork;

/// What a scenario takes. Serialises to the contract `plimsoll estimate --format json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Format version: 1.
    pub schema: u32,
    /// The scenario that was estimated, every default filled in.
    pub scenario: Value,
    /// How many numbers the model holds.
    pub parameters: Parameters,
    /// The highest point of two optimizer steps.
    pub peak: Peak,
    /// What is alive where `requested` peaks; sums to `peak.requested`.
    pub at_peak: PeakBreakdown,
    /// Every phase of both steps in order.
    pub phases: Vec<Phase>,
    /// The card's limits.
    pub device: DeviceLimits,
    /// Whether it fits.
    pub verdict: Verdict,
    /// Load line minus process peak, in bytes; to spare, or over where negative.
    pub headroom: i64,
    /// The largest micro-batch whose verdict is `fits`; 0 when not even one sample does. [`crate::estimate`]
    /// always fills it; [`crate::Run`] leaves it open, because it costs several traces.
    pub max_batch: Option<u64>,
    /// What a step computes and moves; absent from the JSON where it is not counted (a generation).
    #[serde(skip_serializing_if = "StepWork::is_none")]
    pub work: StepWork,
    /// Of several cards, which ranks do the same, and what each takes; absent from the JSON on one card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// What ranks take to talk to one another, in no other figure; absent from the JSON on one card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub communicators: Vec<Communicator>,
    /// Of several cards, what a machine's own memory holds; absent from the JSON on one card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Where blocks are handed to `record_stream`, between what and what is reserved; absent from the JSON elsewhere, and of a run that does not
    /// fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<Lag>,
    /// What it takes where the driver lays every segment below the last; absent from the JSON where that is the same, and where
    /// [`crate::Run::with_falling`] was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub falling: Option<Falling>,
    /// Of a network of convolutions, between what its process may end up; absent from the JSON of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub convolutions: Option<Convolutions>,
    /// Of a run through `torch.compile`, between what its process may end up; absent from the JSON of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiled: Option<Compiled>,
    /// What cuDNN itself was asked; absent from the JSON where it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cudnn: Option<AskedCudnn>,
    /// Things worth knowing that do not stop the estimate; absent from the JSON when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The highest point, by four measures. They need not peak at the same moment; `phase` to `module` say where
/// `requested` does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// What `torch.cuda.max_memory_allocated` reports.
    pub allocated: Bytes,
    /// Sum of live storages, each rounded up to 512 bytes.
    pub requested: Bytes,
    /// What `torch.cuda.max_memory_reserved` reports.
    pub reserved: Bytes,
    /// What `nvidia-smi` shows for the process: reserved, CUDA context, loaded libraries.
    pub process: Bytes,
    /// Phase in which `requested` peaks.
    pub phase: PhaseName,
    /// Optimizer step (1 or 2; 0 for `load`).
    pub step: u32,
    /// The op whose allocation made the peak.
    pub op: String,
    /// The module it ran in, dotted as in `named_modules`; empty in backward.
    pub module: String,
}

/// Live bytes at the peak of `requested`, by category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the categories are documented on `Category`")]
pub struct PeakBreakdown {
    pub weights: Bytes,
    pub gradients: Bytes,
    pub optimizer_states: Bytes,
    pub saved_activations: Bytes,
    pub temporaries: Bytes,
    pub autocast_copies: Bytes,
    pub inputs: Bytes,
    pub workspace: Bytes,
    /// Absent from the JSON where there is none: only a generation has keys and values.
    #[serde(skip_serializing_if = "Bytes::is_zero")]
    pub kv_cache: Bytes,
}

/// Why a storage is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Parameters and buffers.
    Weights,
    /// What ended up in `.grad`.
    Gradients,
    /// Moments, steps, momentum.
    OptimizerStates,
    /// Kept by the autograd graph for backward.
    SavedActivations,
    /// Neither kept nor owned: dropped as soon as the next ops ran.
    Temporaries,
    /// Autocast's low-precision copies of the weights.
    AutocastCopies,
    /// The batch.
    Inputs,
    /// What kernel libraries keep for themselves inside PyTorch's allocator.
    Workspace,
    /// Keys and values of the tokens a generation has seen.
    KvCache,
}

impl Category {
    /// Every category, in the order they are stacked: what lasts longest first.
    pub const ALL: [Self; 9] = [
        Self::Weights,
        Self::KvCache,
        Self::OptimizerStates,
        Self::Gradients,
        Self::AutocastCopies,
        Self::SavedActivations,
        Self::Temporaries,
        Self::Inputs,
        Self::Workspace,
    ];

    /// The words people read.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Gradients => "gradients",
            Self::OptimizerStates => "optimizer states",
            Self::SavedActivations => "saved activations",
            Self::Temporaries => "temporaries",
            Self::AutocastCopies => "autocast copies",
            Self::Inputs => "inputs",
            Self::Workspace => "workspace",
            Self::KvCache => "KV cache",
        }
    }
}

impl PeakBreakdown {
    /// The bytes of one category.
    pub const fn get(&self, category: Category) -> Bytes {
        match category {
            Category::Weights => self.weights,
            Category::Gradients => self.gradients,
            Category::OptimizerStates => self.optimizer_states,
            Category::SavedActivations => self.saved_activations,
            Category::Temporaries => self.temporaries,
            Category::AutocastCopies => self.autocast_copies,
            Category::Inputs => self.inputs,
            Category::Workspace => self.workspace,
            Category::KvCache => self.kv_cache,
        }
    }

    fn slot(&mut self, category: Category) -> &mut Bytes {
        match category {
            Category::Weights => &mut self.weights,
            Category::Gradients => &mut self.gradients,
            Category::OptimizerStates => &mut self.optimizer_states,
            Category::SavedActivations => &mut self.saved_activations,
            Category::Temporaries => &mut self.temporaries,
            Category::AutocastCopies => &mut self.autocast_copies,
            Category::Inputs => &mut self.inputs,
            Category::Workspace => &mut self.workspace,
            Category::KvCache => &mut self.kv_cache,
        }
    }

    /// Adds `bytes` to one category.
    pub fn add(&mut self, category: Category, bytes: Bytes) {
        *self.slot(category) += bytes;
    }

    /// Takes `bytes`, which must be there, off one category.
    pub fn subtract(&mut self, category: Category, bytes: Bytes) {
        *self.slot(category) -= bytes;
    }

    /// All categories together: equals `peak.requested`.
    pub fn total(&self) -> Bytes {
        Category::ALL.iter().map(|&c| self.get(c)).sum()
    }
}

/// One phase of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// Which part of the loop.
    pub name: PhaseName,
    /// Optimizer step (1 or 2); `None` for `load`.
    pub step: Option<u32>,
    /// Micro-batch within the step, from 1; `None` where the phase is once per step.
    pub micro_batch: Option<u64>,
    /// Highest `requested` within the phase.
    pub peak_requested: Bytes,
    /// `requested` when the phase ended.
    pub end_requested: Bytes,
    /// Allocated when the phase ended.
    pub end_allocated: Bytes,
    /// Reserved when the phase ended.
    pub end_reserved: Bytes,
    /// Highest allocated within the phase. Not part of the JSON: it is what a measured phase is laid beside.
    #[serde(skip)]
    pub peak_allocated: Bytes,
    /// Highest reserved within the phase. Not part of the JSON.
    #[serde(skip)]
    pub peak_reserved: Bytes,
}

/// Whether the run fits the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// The process peak is at or under the load line.
    #[serde(rename = "fits")]
    Fits,
    /// It runs, but deeper than the load line.
    #[serde(rename = "tight")]
    Tight,
    /// It runs out of memory.
    #[serde(rename = "does not fit")]
    DoesNotFit,
}

impl Verdict {
    /// The words people read.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Tight => "tight",
            Self::DoesNotFit => "does not fit",
        }
    }
}

/// Live memory over both steps, for drawing: one point for each change worth seeing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timeline {
    /// In order; each holds until the next.
    pub points: Vec<TimelinePoint>,
    /// Index into `points` of the peak of `requested`.
    pub peak: usize,
}

/// One moment of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelinePoint {
    /// Position in the event stream (number of allocations and frees so far).
    pub event: u32,
    /// Index into [`Estimate::phases`].
    pub phase: u32,
    /// Live bytes by category; sums to `requested` at that moment.
    pub live: PeakBreakdown,
    /// The op of the latest allocation.
    pub op: String,
    /// The module it ran in.
    pub module: String,
}

/// One group of equal storages alive at a moment: "who holds what".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holding {
    /// Why it is alive.
    pub category: Category,
    /// The module that made it; layer indices replaced by `*` when grouped over layers.
    pub module: String,
    /// The op that made it.
    pub op: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// PyTorch's name of its dtype (`float32`, `bfloat16`, ...).
    pub dtype: String,
    /// How many such storages.
    pub count: u64,
    /// Their bytes together, each rounded up to 512.
    pub bytes: Bytes,
}
