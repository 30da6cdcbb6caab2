//! A storage: what a tensor's numbers lie in, from its birth to its death.

use std::num::NonZeroU32;

use crate::{DType, GradFnId, ModuleId, OpId, ShapeId};

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

impl Kind {
    /// All of them, by number.
    pub const ALL: [Self; 13] = [
        Self::Parameter,
        Self::Buffer,
        Self::Input,
        Self::Forward,
        Self::Saved,
        Self::AutocastCopy,
        Self::Backward,
        Self::Gradient,
        Self::OptimizerState,
        Self::Optimizer,
        Self::Workspace,
        Self::KeyValue,
        Self::Scratch,
    ];

    /// Its name in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Buffer => "buffer",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Saved => "saved",
            Self::AutocastCopy => "autocast_copy",
            Self::Backward => "backward",
            Self::Gradient => "gradient",
            Self::OptimizerState => "optimizer_state",
            Self::Optimizer => "optimizer",
            Self::Workspace => "workspace",
            Self::KeyValue => "key_value",
            Self::Scratch => "scratch",
        }
    }
}

/// One storage of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Bytes asked for.
    pub bytes: u64,
    /// The module it was made in (in backward: the module whose forward made the node).
    pub module: ModuleId,
    /// The sizes of the tensor it was made for.
    pub shape: ShapeId,
    /// The parameter it belongs to, by its storage: set of what an optimizer makes for one parameter.
    pub owner: Option<Owner>,
    /// The op that made it.
    pub op: OpId,
    /// In backward, the autograd function that ran the op.
    pub grad_fn: GradFnId,
    /// Why it exists.
    pub kind: Kind,
    /// Element type.
    pub dtype: DType,
}

/// A parameter that a storage belongs to: the id of the parameter's own storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(NonZeroU32);

impl Owner {
    /// The parameter whose storage has this id.
    pub const fn new(parameter: u32) -> Option<Self> {
        match NonZeroU32::new(parameter.wrapping_add(1)) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The id of the parameter's storage.
    pub const fn parameter(self) -> u32 {
        self.0.get() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of a large model writes tens of thousands of them, and copies most of them from others.
    #[test]
    fn a_storage_takes_thirty_two_bytes() {
        assert_eq!(size_of::<Storage>(), 32);
    }

    #[test]
    fn tables_stand_in_the_order_of_their_numbers() {
        assert!(Kind::ALL.iter().enumerate().all(|(number, kind)| *kind as usize == number));
        assert!(DType::ALL.iter().enumerate().all(|(number, dtype)| *dtype as usize == number));
    }

    #[test]
    fn an_owner_is_a_storage_of_any_id() {
        assert_eq!(Owner::new(0).map(Owner::parameter), Some(0));
        assert_eq!(Owner::new(7).map(Owner::parameter), Some(7));
        assert_eq!(Owner::new(u32::MAX), None);
    }
}
