//! What the format has words for and the engine does not estimate yet.

use super::table::Table;
use super::{LossImpl, Optimizer, Training};
use crate::{Error, Result};

/// Refuses what is not estimated yet.
///
/// # Errors
/// The first key that asks for such a thing.
pub fn check(training: &Training, table: &Table<'_>) -> Result<()> {
    let pending = [
        ("optimizer", matches!(training.optimizer, Optimizer::AdamW8bit | Optimizer::Lion | Optimizer::Muon)),
        ("loss_impl", training.loss_impl != LossImpl::Full),
        ("label_smoothing", training.label_smoothing > 0.0),
        ("ema", training.ema),
        ("compile", training.compile),
    ];
    match pending.iter().find(|(_, asked)| *asked) {
        Some((key, _)) => Err(Error::new(table.at(key), "this is not estimated yet", "leave it out")),
        None => Ok(()),
    }
}
