//! What the planner needs that needs no browser: readings of a run, levers, layouts, searches, wording.
//!
//! Everything here is a pure function and tested natively; `main.rs` is the page that prints it.
#![forbid(unsafe_code)]

pub mod breakdown;
pub mod choices;
pub mod compare;
pub mod cursor;
pub mod engine;
pub mod errand;
pub mod field;
pub mod gauge;
pub mod heatmap;
pub mod kind;
pub mod levers;
pub mod number;
pub mod path;
pub mod reading;
pub mod scale;
pub mod search;
pub mod sizes;
pub mod spread;
pub mod timeline;
pub mod wording;
