//! The engine of Plimsoll: says, before a PyTorch training run starts, how much GPU memory it will take and why.
//!
//! It executes the training step with tensors that have a size but no contents, under PyTorch's own rules for what
//! keeps what alive, and reads the peak off the ledger. Pure: no I/O, no clock, no threads, no printing; the same
//! scenario gives the same bytes on every target.
//!
//! Start at [`Scenario`] (what is asked), [`estimate::estimate`] (the answer) and [`Estimate`] (its shape).
#![forbid(unsafe_code)]

pub mod allocator;
pub mod catalog;
pub mod device;
mod error;
pub mod estimate;
mod generate;
mod inference;
pub mod measurement;
mod models;
mod nn;
mod ops;
mod optim;
pub mod scenario;
pub mod single;
pub mod software;
pub mod solve;
mod step;
mod tensor;
mod units;

pub use error::{Error, Result};
pub use estimate::Estimate;
pub use measurement::Measurement;
pub use scenario::Scenario;
pub use units::Bytes;
