//! The imitation of PyTorch: tensors with a size and a lifetime but no contents, autograd, ops, modules, optimizers, and the
//! loop that generates text. It writes a ledger and knows no model.
#![forbid(unsafe_code)]

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
