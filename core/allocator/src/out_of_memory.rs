//! What the allocator says when the card is full.

use std::fmt;

use plimsoll_ground::Bytes;

/// A request no block and no segment could be found for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What was asked for.
    pub requested: Bytes,
    /// In use at that moment.
    pub allocated: Bytes,
    /// Taken from the driver, after cached segments were released.
    pub reserved: Bytes,
    /// What may be reserved; `None` means the request was too large for any card.
    pub limit: Option<Bytes>,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, allocated, reserved, limit } = self;
        write!(f, "out of memory: {requested} were asked for, {allocated} are allocated and {reserved} reserved")?;
        match limit {
            Some(limit) => write!(f, " of {limit}; a smaller batch or checkpointing needs less"),
            None => write!(f, ", which is more than any card addresses; check the sizes of the model and the input"),
        }
    }
}

impl std::error::Error for OutOfMemory {}
