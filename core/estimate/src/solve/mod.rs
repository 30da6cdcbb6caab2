//! Questions that take many estimates: the largest batch that fits, and what fits over batches and sequences.
//!
//! Nothing here knows an approximation: what is not traced is read off [`crate::AnyBatch`]s, whose sizes are
//! exact, and replayed through the same allocator a single estimate goes through.

mod axes;
mod bands;
mod cell;
mod grid;
mod largest;
pub mod needs;
mod parallel;
mod replays;
mod row;
mod steps;
mod surface;
#[cfg(test)]
mod tests;
mod variant;

pub use axes::{around, even};
pub use cell::{Cell, Known, Row};
pub use grid::{EFFORT, Grid, MOST_CELLS, grid};
pub use largest::{NOT_SEARCHED, max_batch};
