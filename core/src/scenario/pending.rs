//! What the format has words for and the engine does not estimate yet.

use super::Training;
use super::table::Table;
use crate::{Error, Result};

/// Refuses what is not estimated yet.
///
/// # Errors
/// The first key that asks for such a thing.
pub fn check(training: &Training, table: &Table<'_>) -> Result<()> {
    let saves = |training: &Training| training.lora.as_ref().is_some_and(|lora| !lora.modules_to_save.is_empty());
    let pending = [("lora.modules_to_save", saves(training))];
    match pending.iter().find(|(_, asked)| *asked) {
        Some((key, _)) => Err(Error::new(table.at(key), "this is not estimated yet", "leave it out")),
        None => Ok(()),
    }
}
