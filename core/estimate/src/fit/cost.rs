//! What a recipe costs, in words.

use serde::{Deserialize, Serialize};

/// What is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing but another package or kernel.
    Software,
    /// Bytes that leave the card.
    Traffic,
    /// Time: the same result, more or smaller kernels.
    Compute,
    /// Digits: the same method in fewer bits.
    Numerics,
    /// What is learned.
    Quality,
}

impl Kind {
    /// The word people read before the sentence.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Traffic => "traffic",
            Self::Compute => "compute",
            Self::Numerics => "numerics",
            Self::Quality => "quality",
        }
    }
}

/// One thing a recipe costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// What is given up.
    pub kind: Kind,
    /// In a clause, without a final stop.
    pub words: String,
}

impl Cost {
    pub(super) fn new(kind: Kind, words: impl Into<String>) -> Self {
        Self { kind, words: words.into() }
    }
}
