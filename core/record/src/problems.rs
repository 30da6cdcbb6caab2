//! What is wrong with a record, noted while it is looked through.

use plimsoll_ground::Error;

/// What is wrong with a record, as it is found.
#[derive(Debug, Default)]
pub struct Problems(Vec<Error>);

impl Problems {
    /// Notes a problem at `key`.
    pub fn add(&mut self, key: impl Into<String>, problem: impl Into<String>, hint: &str) {
        self.0.push(Error::new(key, problem, hint));
    }

    /// All of them, in the order they were found.
    pub fn found(self) -> Vec<Error> {
        self.0
    }

    /// Notes a problem at `key` unless `holds`.
    pub fn unless(&mut self, holds: bool, key: impl Into<String>, problem: impl FnOnce() -> String, hint: &str) {
        if !holds {
            self.add(key, problem(), hint);
        }
    }
}

/// What to do about figures that contradict one another.
pub const MEASURE_AGAIN: &str = "measure again, and give the record as plimsoll probe wrote it";
