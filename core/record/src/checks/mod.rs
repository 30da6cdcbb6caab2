//! The rules of [`super::Measurement::validate`], one file for each part of a record.

pub mod cycle;
pub mod estimate;
pub mod peaks;
pub mod ranks;
pub mod real;
pub mod sizes;
pub mod texts;
