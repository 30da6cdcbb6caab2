//! An estimate in few words, for everyone who shows or sends one: what the process's peak is stacked of and what that is
//! called, the run in a line, and the whole as a note in Markdown or as a picture (SVG).
//!
//! Every face stacks the same kinds under the same names; how they are painted is its own affair.
#![forbid(unsafe_code)]

mod cause;
mod host;
mod kind;
mod markdown;
mod parts;
mod picture;
pub mod plan;
mod recorded;
mod roles;
mod words;

pub use cause::cause;
pub use host::host;
pub use kind::Kind;
pub use markdown::markdown;
pub use parts::{Part, parts};
pub use picture::picture;
pub use recorded::{Recorded, range};
pub use roles::{Hull, fleet, roles};
pub use words::{card_name, distance, fit, model_name, phase, place, recipe, verdict, wrapped};
