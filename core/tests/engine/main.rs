//! The engine through its one public door.
#![allow(clippy::unwrap_used, reason = "a helper that fails, fails the test")]

mod adapters;
mod classifiers;
mod deberta;
mod falcon;
mod generate;
mod models;
mod refused;
mod saved;
mod versions;
mod vision;
