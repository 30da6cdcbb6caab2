//! Errors: what is wrong, where, and what to do next.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::vocabulary;

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
    /// Why, in a word that stays as it is, where somebody may act on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

vocabulary!(
    /// Why PyTorch, or a library on it, fails on what is asked: by this a refusal is known, however it is worded.
    Reason {
        /// Something writes over what a selective checkpoint keeps.
        WrittenOver = "written-over",
        /// A batch norm with weights of 16 bits is given the other 16 bits.
        MixedBatchNorm = "mixed-batch-norm",
        /// A parameter without dimensions is to be cut or sent.
        ScalarParameter = "scalar-parameter",
        /// A parameter gets another dtype than its average has.
        RecastParameter = "recast-parameter",
        /// A product is given more dimensions than it takes.
        ManyDimensions = "many-dimensions",
        /// A parameter that no loss reaches is waited for.
        UnreachedParameter = "unreached-parameter",
        /// A product of groups is given rows that are no multiple of 16 bytes.
        UnalignedRows = "unaligned-rows",
        /// A checkpoint's recomputation saves other tensors than its forward.
        RecomputedOtherwise = "recomputed-otherwise",
        /// A mask came back from the machine's memory without the room at the end of its rows.
        UnalignedMask = "unaligned-mask",
        /// A checkpoint that keeps its first input in the machine's memory is given more to differentiate, or makes more than one tensor.
        OneOfEach = "one-of-each",
        /// A parameter's gradient is ready a second time.
        ReadyTwice = "ready-twice",
        /// What is scattered has another dtype than what it goes into.
        ScatteredDtype = "scattered-dtype",
    }
);

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::parse(&word).ok_or_else(|| de::Error::custom(format!("{word:?} is no reason")))
    }
}

impl Error {
    /// `key` is a dotted path; `problem` and `hint` are sentences without a final stop.
    pub fn new(key: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into(), hint: hint.into(), reason: None }
    }

    /// The same, for this reason.
    #[must_use]
    pub fn because(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
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
