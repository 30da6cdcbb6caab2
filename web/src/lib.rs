//! What the planner needs that needs no browser: readings of a run, neighbours of it, layouts, searches, wording.
//!
//! Everything here is a pure function and tested natively; `main.rs` is the page that prints it.
#![forbid(unsafe_code)]

pub mod beside;
pub mod breakdown;
pub mod compare;
pub mod control;
pub mod cursor;
pub mod engine;
pub mod field;
pub mod fleet;
pub mod gauge;
pub mod glossary;
pub mod heatmap;
pub mod neighbours;
pub mod number;
pub mod path;
pub mod plans;
pub mod protocol;
pub mod reading;
pub mod scale;
pub mod served;
pub mod sizes;
pub mod snapshot;
pub mod spread;
pub mod timeline;
pub mod trail;
pub mod window;
pub mod wording;
