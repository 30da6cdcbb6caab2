//! The ledger: every storage that ever lived, in the order of its birth, and the stream of births and deaths.

use crate::{DType, Event, ModuleId, Parameters, PhaseName};

/// The most dimensions a storage's tensor has.
pub const MAX_RANK: usize = 6;

/// Why a storage exists. Set at birth from the phase, raised when autograd keeps it or a gradient is accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `nn.Parameter`.
    Parameter,
    /// `nn.Buffer`.
    Buffer,
    /// The batch.
    Input,
    /// Made in forward, not kept by the graph.
    Forward,
    /// Made in forward, kept by the graph.
    Saved,
    /// Autocast's copy of a weight.
    AutocastCopy,
    /// Made in backward.
    Backward,
    /// Became a parameter's `.grad`.
    Gradient,
    /// Kept between steps by the optimizer or the GradScaler.
    OptimizerState,
    /// Made in clipping or in the optimizer's step.
    Optimizer,
    /// Kept by a kernel library.
    Workspace,
    /// Keys and values of the tokens a generation has seen.
    KeyValue,
    /// Made by a kernel for itself, and let go of when it is done.
    Scratch,
}

/// One storage of the ledger.
#[derive(Clone, Copy, Debug)]
pub struct StorageInfo {
    /// Bytes asked for.
    pub bytes: u64,
    /// Why it exists.
    pub kind: Kind,
    /// The ATen op that made it.
    pub op: &'static str,
    /// In backward, the autograd node that ran the op; empty otherwise.
    pub node: &'static str,
    /// The module it was made in (in backward: the module whose forward made the node).
    pub module: ModuleId,
    /// Element type.
    pub dtype: DType,
    /// Number of dimensions.
    pub rank: u8,
    /// Sizes.
    pub dims: [u64; MAX_RANK],
}

/// Where a phase of the loop begins in the event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseMark {
    /// Index of its first event.
    pub at: usize,
    /// Which part of the loop.
    pub name: PhaseName,
    /// Optimizer step, `None` for load.
    pub step: Option<u32>,
    /// Micro-batch, `None` where the phase is once per step.
    pub micro_batch: Option<u64>,
}

/// What a run wrote: every storage, every birth and death, where each phase begins, and the model they are about.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Storages by id.
    pub storages: Vec<StorageInfo>,
    /// Births and deaths in order.
    pub events: Vec<Event>,
    /// Where each phase begins.
    pub phases: Vec<PhaseMark>,
    /// Modules' dotted paths, by [`ModuleId`]; the first is empty, for what belongs to no module.
    pub modules: Vec<String>,
    /// Numbers in the model.
    pub parameters: Parameters,
    /// The storages of the parameters that are trained, in the model's order.
    pub trained: Vec<u32>,
}

impl Ledger {
    /// With room for the storages of a model of some thirty layers, so that a run does not begin by growing.
    pub fn roomy() -> Self {
        const STORAGES: usize = 1 << 14;
        Self {
            storages: Vec::with_capacity(STORAGES),
            events: Vec::with_capacity(2 * STORAGES),
            phases: Vec::with_capacity(32),
            modules: vec![String::new()],
            ..Self::default()
        }
    }

    /// The path of the module a storage was made in.
    pub fn module(&self, storage: &StorageInfo) -> &str {
        self.modules.get(storage.module.index()).map_or("", String::as_str)
    }
}
