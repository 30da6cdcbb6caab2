//! A size and where it comes from.

use plimsoll_ground::Bytes;

/// A number of bytes nobody can compute: it was read on real cards, or is assumed from what was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sourced {
    /// How much.
    pub bytes: Bytes,
    /// Where it was read, or what it was inferred from.
    pub source: &'static str,
    /// No reading of this kind of card was found: believe it less.
    pub assumed: bool,
}

impl Sourced {
    /// Read on cards of this kind.
    pub(super) const fn read(bytes: Bytes, source: &'static str) -> Self {
        Self { bytes, source, assumed: false }
    }

    /// Inferred from other cards.
    pub(super) const fn assumed(bytes: Bytes, source: &'static str) -> Self {
        Self { bytes, source, assumed: true }
    }
}
