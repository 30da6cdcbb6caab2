//! Where in the loop an event stands.

use serde::{Deserialize, Serialize};

/// The parts of the training loop, in the order they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PhaseName {
    /// Model to the device.
    Load,
    /// The batch is made.
    Input,
    /// Forward and loss.
    Forward,
    /// Backward.
    Backward,
    /// Unscale and clip.
    Clip,
    /// The optimizer's step.
    Optimizer,
    /// `zero_grad`.
    ZeroGrad,
    /// Inference: the prompt is read, the first token chosen.
    Prefill,
    /// Inference: every further token.
    Decode,
}

impl PhaseName {
    /// The contract's spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Clip => "clip",
            Self::Optimizer => "optimizer",
            Self::ZeroGrad => "zero_grad",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// Where a phase of the loop begins in the event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseMark {
    /// Index of its first event.
    pub at: usize,
    /// Index of its first launch.
    pub launch: usize,
    /// Which part of the loop.
    pub name: PhaseName,
    /// Optimizer step, `None` for load.
    pub step: Option<u32>,
    /// Micro-batch, `None` where the phase is once per step.
    pub micro_batch: Option<u64>,
}
