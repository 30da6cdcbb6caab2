//! The schedule of phases: a scenario becomes a ledger.
#![forbid(unsafe_code)]
// When a tensor is dropped is what the ledger says: nothing is dropped where one reads over it.
#![warn(let_underscore_drop)]

mod execute;
mod hull;
mod infer;
mod train;
mod trainer;

pub use execute::{
    LARGEST_SUM, Libraries, card, execute, execute_by, execute_for_memory, execute_replica, execute_with,
};
pub use train::{Repeats, train};

#[cfg(test)]
mod budget_tests;
