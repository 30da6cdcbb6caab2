//! Size-only tensors: storages on a ledger, geometry, autograd, autocast, checkpointing.

mod autocast;
mod autograd;
mod backward;
mod checkpoint;
mod context;
mod dtype;
mod geometry;
mod ledger;
mod repeat;
mod saved;
mod storage;

pub use autograd::{Grads, Tape, grads};
pub use backward::{Gradients, backward};
pub use checkpoint::checkpoint;
pub use context::{Context, ModuleId};
pub use dtype::DType;
pub use geometry::Geometry;
pub use ledger::{Kind, Ledger, StorageInfo};
pub use repeat::Repeat;
pub use saved::Saved;
pub use storage::Tensor;
