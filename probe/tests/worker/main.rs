//! The worker as it is, with real PyTorch on the CPU.
//!
//! `cargo xtask test` runs these with a Python that has what `requirements.txt` names, and says so when there is none;
//! `PLIMSOLL_TEST_PYTHON` names one to `cargo test -p plimsoll-probe --test worker -- --include-ignored`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "the helpers of a test may fail it as its lines may")]

mod attempts;
mod code;
mod ending;
mod families;
mod inference;
mod job;
mod numbers;
mod order;
mod process;
#[cfg(unix)]
mod ranks;
mod recipes;
mod recorder;
mod refusals;
mod report;
mod several;
