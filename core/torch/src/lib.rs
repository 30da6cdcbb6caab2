//! The imitation of PyTorch: tensors with a size and a lifetime but no contents, autograd, ops, modules, optimizers, and the
//! loop that generates text. It writes a ledger and knows no model.
#![forbid(unsafe_code)]
// When a tensor is dropped is what the ledger says: nothing is dropped where one reads over it.
#![warn(let_underscore_drop)]

mod batch;
pub mod generate;
mod grad_fn;
mod names;
pub mod nn;
mod op;
pub mod ops;
pub mod optim;
pub mod tensor;

pub use batch::{Batch, Field};
pub use grad_fn::GradFn;
pub use op::Op;
