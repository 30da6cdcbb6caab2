//! The keys beside `family`, which describe a network of our own.

use serde_json::Value;

/// One key beside `family`.
#[derive(Clone, Copy, Debug)]
pub struct FamilyKey {
    /// As it is written.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// What it holds, and its default.
    pub kind: FamilyKeyKind,
}

/// What a family's key holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FamilyKeyKind {
    /// A whole number from 1 to `most`.
    Count {
        /// When the key is missing.
        default: u64,
        /// The largest accepted.
        most: u64,
    },
    /// A probability, 0 <= p < 1.
    Fraction {
        /// When the key is missing.
        default: f64,
    },
    /// true or false.
    Flag {
        /// When the key is missing.
        default: bool,
    },
    /// One of these words.
    Word {
        /// When the key is missing; one of `words`.
        default: &'static str,
        /// Every word that is accepted.
        words: &'static [&'static str],
    },
}

impl FamilyKeyKind {
    /// What a key that is not given holds.
    pub fn default(self) -> Value {
        match self {
            Self::Count { default, .. } => default.into(),
            Self::Fraction { default } => default.into(),
            Self::Flag { default } => default.into(),
            Self::Word { default, .. } => default.into(),
        }
    }
}
