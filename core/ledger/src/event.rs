//! One entry of the ledger's event stream.

use std::fmt;

/// That a storage came or went, in four bytes: a step of a large model has tens of thousands of them.
///
/// ```
/// use plimsoll_ledger::Event;
/// assert_eq!((Event::alloc(7).id(), Event::alloc(7).is_free()), (7, false));
/// assert_eq!((Event::free(7).id(), Event::free(7).is_free()), (7, true));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event(u32);

impl Event {
    /// Set in a free; the other bits are the id.
    const FREE: u32 = 1 << 31;

    /// The largest id a storage can have.
    pub const MAX_ID: u32 = Self::FREE - 1;

    /// Storage `id`, at most [`Self::MAX_ID`], was allocated.
    pub const fn alloc(id: u32) -> Self {
        debug_assert!(id <= Self::MAX_ID);
        Self(id & Self::MAX_ID)
    }

    /// Storage `id`, at most [`Self::MAX_ID`], was freed.
    pub const fn free(id: u32) -> Self {
        debug_assert!(id <= Self::MAX_ID);
        Self(id | Self::FREE)
    }

    /// Whether the storage went.
    pub const fn is_free(self) -> bool {
        self.0 & Self::FREE != 0
    }

    /// Which storage.
    pub const fn id(self) -> u32 {
        self.0 & Self::MAX_ID
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", if self.is_free() { "free" } else { "alloc" }, self.id())
    }
}
