//! Errors: what is wrong, where, and what to do next.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The result of everything in this crate that can be refused.
pub type Result<T> = std::result::Result<T, Error>;

/// A scenario that cannot be estimated: the key it is about, what is wrong there, and what to do.
///
/// Printed as `training.precision: "fp8" is not a precision; use one of fp32, fp16-amp, ...`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// Dotted path of the scenario's key (`training.precision`), or `scenario` for the whole.
    pub key: String,
    /// What is wrong there.
    pub problem: String,
    /// What to do about it.
    pub hint: String,
}

impl Error {
    /// `key` is a dotted path; `problem` and `hint` are sentences without a final stop.
    pub fn new(key: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into(), hint: hint.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
