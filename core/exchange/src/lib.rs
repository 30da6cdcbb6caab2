//! What people have in hand: configurations of the tools they train with, read as a scenario; and a scenario, written as theirs.
//!
//! [`read`] takes files or pasted text, says which tool each is of, and gives the keys of a scenario with a note on every
//! key it met: taken, of no weight, beyond what is estimated, not known. Nothing is run, nothing is loaded.

#![forbid(unsafe_code)]

mod dialect;
mod draft;
mod read;
mod rule;
mod settle;
mod syntax;
mod write;

pub use dialect::tools;
pub use read::{Imported, Key, Outcome, Part, Source, merge, read, read_for};
pub use syntax::MOST_BYTES;
pub use write::{Form, write};
