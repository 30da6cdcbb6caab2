//! What is asked: a model, its input, the training recipe, the card.
//!
//! One format serves the file (TOML or JSON), the command line, the share link, the server and the probe.
//! The types here hold a *valid* scenario with every default filled in; [`Scenario::from_json`] and its siblings
//! are the way in and refuse everything else with an [`plimsoll_ground::Error`] that names the key.

#![forbid(unsafe_code)]

mod generation;
mod input;
mod inputs;
mod keys;
pub mod limits;
pub mod link;
mod loss;
mod measured;
mod memory;
mod model;
mod read;
mod recipe;
pub mod supported;
mod table;
pub mod text;
mod write;

#[cfg(test)]
mod input_tests;
#[cfg(test)]
mod read_tests;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod write_tests;

pub use generation::generates;
pub use inputs::Inputs;
pub use keys::{KEYS, Key, Kind};
pub use link::Link;
pub use memory::{parse as parse_memory, print as print_memory};
pub use plimsoll_catalog::software::Software;
pub use plimsoll_ground::{nearest, nearest_ids};
pub use read::{DEFAULT_GPU, DEFAULT_MODEL, SCHEMA};
pub use recipe::{
    Attention, AttentionMask, Checkpointing, Lora, LoraTargets, LossImpl, Mode, Optimizer, OptimizerImpl, Precision,
    Quantization, Task, ZeroGrad, ZeroGradAt,
};

use plimsoll_ground::Bytes;
use serde_json::{Map, Value};

/// A complete question, every default filled in. Field by field the contract of the design's section 4.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// `[model]`.
    pub model: Model,
    /// `[input]`.
    pub input: Input,
    /// `[training]`.
    pub training: Training,
    /// `[device]`.
    pub device: Device,
    /// `[software]`.
    pub software: Software,
}

/// `[model]`: where the architecture comes from, and what is trained on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Exactly one of the keys `catalog`, `hf`, `family`.
    pub source: ModelSource,
    /// `task`.
    pub task: Task,
}

/// Where the architecture's sizes come from.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelSource {
    /// `catalog = "llama-3.2-1b"`: an id in `data/models`.
    Catalog(String),
    /// `hf = {...}`: the content of a Hugging Face `config.json`, as pasted; `model_type` is always a string in it.
    HuggingFace(Map<String, Value>),
    /// `family = "mlp"` and the family's own keys (`d_in`, `hidden`, ...) beside it.
    Family {
        /// `mlp`, `nanogpt`, `nbeats`, ...
        name: String,
        /// The family's own keys, all of them: one that was not given has its default.
        keys: Map<String, Value>,
    },
}

/// `[input]`: what one micro-batch looks like.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Micro-batch on one device, in samples.
    pub batch: u64,
    /// Tokens per sample (nodes, for graphs; label tokens, for speech); `None` only where a sample has no sequence
    /// (`mlp`, `nbeats`, images).
    pub seq: Option<u64>,
    /// Decoder tokens of an encoder-decoder; `None` for every other model.
    pub target_seq: Option<u64>,
    /// Side of a square image in pixels; `None` where a sample has no image.
    pub image: Option<u64>,
    /// Tokens that are generated after the prompt; `None` but in inference of a model that generates.
    pub max_new_tokens: Option<u64>,
    /// `attention_mask`.
    pub attention_mask: AttentionMask,
}

/// `[training]`: the recipe.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// `mode`.
    pub mode: Mode,
    /// `precision`.
    pub precision: Precision,
    /// `optimizer`.
    pub optimizer: Optimizer,
    /// `optimizer_impl`.
    pub optimizer_impl: OptimizerImpl,
    /// Micro-batches per optimizer step.
    pub accumulation: u64,
    /// `checkpointing`.
    pub checkpointing: Checkpointing,
    /// `attention`.
    pub attention: Attention,
    /// Whether `clip_grad_norm_` runs before the optimizer.
    pub clip_grad_norm: bool,
    /// `zero_grad`.
    pub zero_grad: ZeroGrad,
    /// `zero_grad_at`.
    pub zero_grad_at: ZeroGradAt,
    /// Whether the loop holds the model's outputs (logits) through backward.
    pub keep_outputs: bool,
    /// `lora`; absent means full training.
    pub lora: Option<Lora>,
    /// `quantization`.
    pub quantization: Quantization,
    /// `prepare_kbit`: whether a quantized base goes through peft's `prepare_model_for_kbit_training` before it is
    /// trained. False only of one that is quantized and trained.
    pub prepare_kbit: bool,
    /// `loss_impl`.
    pub loss_impl: LossImpl,
    /// `label_smoothing`, 0 <= p < 1. Of a Hugging Face model it is the Trainer's `label_smoothing_factor`: the model
    /// returns logits only, autocast ends, the logits are made float32, and `LabelSmoother` computes the loss. Of the
    /// families of our own it is `cross_entropy(label_smoothing=)`.
    pub label_smoothing: f64,
    /// Whether an exponential moving average of the weights is kept on the device:
    /// `torch.optim.swa_utils.AveragedModel`, a copy of every parameter and buffer, averaged after each optimizer step.
    pub ema: bool,
    /// Whether the model runs through `torch.compile`; not modelled, which the estimate says.
    pub compile: bool,
}

/// `[device]`: the card.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// An id in `data/gpus.toml`.
    pub gpu: String,
    /// Overrides the card's capacity.
    pub memory: Option<Bytes>,
    /// Overrides the load line.
    pub load_line: Option<Bytes>,
    /// Whether what kernels allocate inside (cuBLAS workspaces, ...) is counted.
    pub workspaces: bool,
}

impl Scenario {
    /// Whether bitsandbytes runs in it, so that its version matters.
    pub fn uses_bitsandbytes(&self) -> bool {
        let training = &self.training;
        training.quantization != Quantization::None
            || match training.optimizer {
                Optimizer::AdamW8bit => true,
                Optimizer::Lion => training.optimizer_impl == OptimizerImpl::Fused,
                _ => false,
            }
    }
}
