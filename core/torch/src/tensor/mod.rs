//! Size-only tensors: storages on a ledger, geometry, autograd, autocast, checkpointing.

mod autocast;
mod autograd;
mod backward;
mod blas;
mod checkpoint;
mod context;
mod geometry;
mod heard;
mod hooks;
mod host;
mod launch;
mod limits;
mod loaded;
mod loss_rules;
mod machine;
mod mould;
mod offloaded;
mod past;
mod place;
mod reentrant;
mod repeat;
mod retell;
mod saved;
mod stash;
mod storage;
mod told;
mod unit_backward;
mod unit_lines;
mod units;

#[cfg(test)]
mod autocast_tests;
#[cfg(test)]
mod backward_tests;
#[cfg(test)]
mod checkpoint_tests;
#[cfg(test)]
mod lifetime_tests;
#[cfg(test)]
mod reentrant_tests;
#[cfg(test)]
mod stash_tests;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use autograd::{Grads, Tape, grads};
pub use backward::{Gradients, backward, backward_retaining};
pub use checkpoint::{checkpoint, checkpoint_all};
pub use context::Context;
pub use geometry::Geometry;
pub use hooks::Hooks;
pub use host::HostMemory;
pub(crate) use launch::Launch;
pub use loss_rules::{HeadLoss, LossRules, Smoothing};
pub use machine::{Kernels, Machine};
pub use mould::{Mould, Moulds};
pub use offloaded::Offloading;
pub use past::{Past, PastLinear, Seen};
pub use repeat::{Position, Repeat};
pub use saved::Saved;
pub use storage::Tensor;
pub use told::{Told, ToldShape};
pub use units::{Unit, WORTH, run_units};

pub use plimsoll_ledger::{DType, Kind, ModuleId};
