//! Measurement records on this machine: written whole or not at all, kept in the user's data directory, read back.

mod atomic;
mod name;
mod place;
mod store;
mod text;

#[cfg(test)]
pub mod sample;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use plimsoll_core::measurement::{Attempt, Outcome, TEXT};
use plimsoll_core::{Error, Measurement};

use crate::exit::Failure;

pub use atomic::replace;
pub use name::model;
pub use place::data_directory;
pub use store::Store;
pub use text::text;

/// Longest record that is read, in bytes.
const LONGEST: u64 = TEXT as u64;

/// Writes a record to a file: whoever looks finds the old content or the new, never half of it.
///
/// # Errors
/// [`Failure::Environment`] when the file cannot be written.
pub fn write(path: &Path, measurement: &Measurement) -> Result<(), Failure> {
    replace(path, text(measurement).as_bytes())
        .map_err(|error| cannot("write", path, &error, "check that the folder exists and may be written to"))
}

/// Whether a record tells of anything that ran. A worker that failed or was stopped before its first step leaves one that says
/// so, and nothing to keep among what was measured.
pub fn tells(record: &Measurement) -> bool {
    let empty = |a: &Attempt| a.steps == 0 && matches!(a.outcome, Outcome::Failed | Outcome::Interrupted);
    !record.attempts.iter().all(empty)
}

/// Reads a record: its shape, not whether it can be true.
///
/// # Errors
/// [`Failure::Environment`] when the file cannot be read, [`Failure::Scenario`] when it holds no record.
pub fn read(path: &Path) -> Result<Measurement, Failure> {
    let name = path.display().to_string();
    let mut content = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST + 1).read_to_end(&mut content))
        .map_err(|error| cannot("read", path, &error, "check the path"))?;
    if content.len() as u64 > LONGEST {
        let hint = "name a file that `plimsoll probe` wrote";
        return Err(Failure::from(Error::new("record", "it is larger than any record", hint)).in_file(&name));
    }
    let content = String::from_utf8(content).map_err(|_| {
        Failure::from(Error::new("record", "it is not UTF-8 text", "name a file that `plimsoll probe` wrote"))
            .in_file(&name)
    })?;
    Measurement::from_json(&content).map_err(|error| Failure::from(error).in_file(&name))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error, hint: &str) -> Failure {
    Failure::Environment { problem: format!("cannot {what} {}: {error}", path.display()), hint: hint.to_owned() }
}
