//! The ledger as a file: JSON, column by column, with a version.
//!
//! What a reader may rely on stands in `docs/ledger.md`. A file comes from anywhere, so reading it checks everything that
//! the rest of the house takes for granted of a ledger: a [`crate::Ledger`] that was read is as good as one that was run.

mod columns;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use read::MOST_TEXT;

use plimsoll_ground::{Error, Result};

use crate::Ledger;
use columns::File;

/// The name that every file bears.
const FORMAT: &str = "plimsoll-ledger";
/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;

impl Ledger {
    /// The ledger as the text of a file.
    ///
    /// # Errors
    /// When it cannot be said in JSON, which is a mistake of ours.
    pub fn to_text(&self) -> Result<String> {
        serde_json::to_string(&write::file(self))
            .map_err(|problem| Error::new("ledger", format!("it cannot be written: {problem}"), "report it"))
    }

    /// The ledger of a file's text.
    ///
    /// # Errors
    /// What is wrong with the text, by the column it stands in.
    pub fn from_text(text: &str) -> Result<Self> {
        if text.len() as u64 > MOST_TEXT {
            return Err(read::wrong("", format!("it is longer than {MOST_TEXT} bytes")));
        }
        let file: File =
            serde_json::from_str(text).map_err(|problem| read::wrong("", format!("it is no ledger: {problem}")))?;
        read::ledger(file)
    }
}
