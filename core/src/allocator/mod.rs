//! See the design.

/// One entry of the ledger's event stream, packed: bit 31 set means a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(u32);

impl Event {
    /// The birth of a storage.
    pub const fn alloc(id: u32) -> Self {
        Self(id)
    }
    /// The death of a storage.
    pub const fn free(id: u32) -> Self {
        Self(id | 1 << 31)
    }
    /// Whether it is a death.
    pub const fn is_free(self) -> bool {
        self.0 >> 31 == 1
    }
    /// The storage.
    pub const fn id(self) -> u32 {
        self.0 & !(1 << 31)
    }
}
