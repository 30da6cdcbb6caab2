//! The engine of Plimsoll: says, before a PyTorch training run starts, how much GPU memory it will take and why.
//!
//! It executes the training step with tensors that have a size but no contents, under PyTorch's own rules for what
//! keeps what alive, and reads the peak off the ledger. Pure: no I/O, no clock, no printing; the same scenario gives the
//! same bytes on every target.
//!
//! Start at [`Scenario`] (what is asked), [`estimate::estimate`] (the answer) and [`Estimate`] (its shape). This crate is the
//! one public door and holds no logic: behind it stand the floors of the house, each a crate whose imports point down only.
#![forbid(unsafe_code)]

pub use plimsoll_allocator as allocator;
pub use plimsoll_catalog::{self as catalog, device, software};
pub use plimsoll_estimate::{self as estimate, Estimate, single, solve};
pub use plimsoll_exchange as exchange;
pub use plimsoll_ground::{Bytes, Error, Reason, Result, grouped, is_hidden, nearest, shown};
pub use plimsoll_ledger as ledger;
pub use plimsoll_record::{self as measurement, Measurement};
pub use plimsoll_scenario::{self as scenario, Scenario};
pub use plimsoll_snapshot as snapshot;
pub use plimsoll_summary as summary;
