//! What is asked: a model, its input, the training recipe, the card.
//!
//! One format serves the file (TOML or JSON), the command line, the share link, the server and the probe. What may stand in it
//! is [`levers`], one table; the structs here are made by it. [`Scenario::from_json`] and its siblings read one with every default filled in;
//! [`Scenario::check`] says whether one makes sense, however it was made, with an [`plimsoll_ground::Error`] that names the key.

#![forbid(unsafe_code)]

mod allocator;
mod beside;
mod change;
mod check;
mod device;
mod fill;
mod given;
mod hull;
mod input;
mod lever;
pub mod limits;
pub mod link;
mod lora;
mod measured;
mod memory;
mod model;
mod parallel;
mod read;
mod recipe;
mod row;
mod software;
pub mod text;
mod training;
mod write;

#[cfg(test)]
mod input_tests;
#[cfg(test)]
mod read_tests;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod write_tests;

pub use allocator::Allocator;
pub use beside::Levers;
pub use change::{ADAPTER_RANK, ADAPTERS, Change};
pub use device::{DEFAULT_GPU, Device, no_such_gpu};
pub use hull::{CONTENT, HullModel, variant as variant_of, words as variant_in_words};
pub use input::Input;
pub use lever::{Entry, Group, Kind, Lever, Near, Row, SECTIONS, Table, Written, lever, levers, linked};
pub use link::{BESIDE, Decoded, Link};
pub use lora::{Lora, LoraTargets};
pub use memory::{parse as parse_memory, parse_gib, print as print_memory};
pub use model::{DEFAULT_MODEL, Model, ModelSource};
pub use parallel::{
    BackwardPrefetch, Ddp, Fsdp, LoadFrom, Offload, Parallel, ParallelStrategy, PolicyDtype, Reshard, Schedule,
    ShardingStrategy, Wrap, Zero, strategies,
};
pub use plimsoll_catalog::families::{Family, Inputs, Task};
pub use plimsoll_catalog::software::{Software, Version};
pub use plimsoll_ground::{Word, nearest, nearest_ids};
pub use read::SCHEMA;
pub use recipe::{
    ActivationOffloading, Attention, AttentionMask, BaseDtype, Checkpointing, CublasWorkspace, Kernels, LossImpl, Mode,
    Optimizer, OptimizerImpl, Precision, QuantStorage, Quantization, Trainer, ZeroGrad, ZeroGradAt,
};
pub use training::Training;

pub(crate) use lora::ALL_LINEAR;

/// Where every lever stands, by the names of the fields: an error's key, and what [`lever`] is asked for.
pub mod at {
    pub use crate::allocator::at as allocator;
    pub use crate::device::at as device;
    pub use crate::input::at as input;
    pub use crate::lora::at as lora;
    pub use crate::model::at as model;
    pub use crate::parallel::at as parallel;
    pub use crate::parallel::strategies::{ddp, fsdp, zero};
    pub use crate::software::at as software;
    pub use crate::training::at as training;
}

/// A complete question, every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// `[model]`.
    pub model: Model,
    /// `[input]`.
    pub input: Input,
    /// `[training]`.
    pub training: Training,
    /// `[parallel]`.
    pub parallel: Parallel,
    /// `[device]`.
    pub device: Device,
    /// `[allocator]`.
    pub allocator: Allocator,
    /// `[software]`.
    pub software: Software,
}

impl Scenario {
    /// The row of its model: what the rest of it may say.
    pub fn family(&self) -> &'static Family {
        self.model.source.family_for(self.model.task)
    }

    /// Whether text comes out of it token by token.
    pub fn generates(&self) -> bool {
        self.training.mode == Mode::Inference && self.family().generates(self.model.task)
    }

    /// Whether torch.compile makes another run of it than the one that is estimated: of no hand-written family is it modelled.
    pub fn compiles_unmodelled(&self) -> bool {
        self.training.compile && !matches!(self.model.source, ModelSource::Hull(_))
    }

    /// Whether bitsandbytes runs in it, so that its version matters.
    pub fn uses_bitsandbytes(&self) -> bool {
        self.training.uses_bitsandbytes()
    }
}

impl Training {
    /// As [`Scenario::uses_bitsandbytes`].
    pub fn uses_bitsandbytes(&self) -> bool {
        self.quantization != Quantization::None
            || match self.optimizer {
                Optimizer::AdamW8bit | Optimizer::PagedAdamW | Optimizer::PagedAdamW8bit => true,
                Optimizer::Lion => self.optimizer_impl == OptimizerImpl::Fused,
                _ => false,
            }
    }

    /// Whether the process has bitsandbytes, where it is installed: peft imports it, and Liger and TRL import peft.
    pub fn imports_bitsandbytes(&self) -> bool {
        self.uses_bitsandbytes()
            || self.lora.is_some()
            || matches!(self.loss_impl, LossImpl::FusedLinear | LossImpl::FusedLmHead)
    }
}
