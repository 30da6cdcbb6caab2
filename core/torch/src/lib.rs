//! The imitation of PyTorch: tensors with a size and a lifetime but no contents, autograd, ops, modules, optimizers, and the
//! loop that generates text. It writes a ledger and knows no model.
#![forbid(unsafe_code)]

pub mod generate;
pub mod nn;
pub mod ops;
pub mod optim;
pub mod tensor;
