//! The schedule of phases: a scenario becomes a ledger.
#![forbid(unsafe_code)]

mod execute;
mod infer;
mod train;

pub use execute::{LARGEST_SUM, card, execute, execute_with};
pub use train::{Repeats, STEPS, train};
