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
mod data_parallel;
mod ddp;
mod fsdp1;
mod fsdp2;
mod hosted;
mod span;
mod wrapper;
mod zero;

use plimsoll_scenario::PolicyDtype;
use plimsoll_torch::tensor::DType;

pub use data_parallel::{DataParallel, Replica};
pub use ddp::Ddp;
pub use fsdp1::{Fsdp1, flat};
pub use fsdp2::{Fsdp2, plan};
pub use wrapper::{Engine, Wrapper};
pub use zero::{Early, Late, Whole};

/// The dtype a policy names, if it names one.
const fn dtype(of: PolicyDtype) -> Option<DType> {
    match of {
        PolicyDtype::Own => None,
        PolicyDtype::Bf16 => Some(DType::BFloat16),
        PolicyDtype::Fp16 => Some(DType::Float16),
        PolicyDtype::Fp32 => Some(DType::Float32),
    }
}
