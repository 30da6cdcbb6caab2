//! Several cards: what DistributedDataParallel and FSDP add to the training step of one rank.
//!
//! A strategy is hooks on a model that knows nothing of it: on the calls of its modules, on the nodes of its backward, on
//! gradients as they arrive. It writes what it allocates into the same ledger, where and when PyTorch allocates it. Nothing
//! is added on top of a run afterwards.

#![forbid(unsafe_code)]
// When a tensor is dropped is what the ledger says: nothing is dropped where one reads over it.
#![warn(let_underscore_drop)]

mod broadcast;
mod buckets;
mod ddp;
mod fsdp2;

pub use ddp::Ddp;
pub use fsdp2::{Fsdp2, plan};
