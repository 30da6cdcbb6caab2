//! One entry of the ledger's event stream.

use std::fmt;

/// The CUDA stream a storage was allocated on. The allocator keeps a free pool for each; the first is the default stream,
/// the only one that a run on one card uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream(u8);

impl Stream {
    /// `torch.cuda.default_stream()`.
    pub const DEFAULT: Self = Self(0);

    /// The stream with this number; 0 is the default stream.
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// What happened to a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// It came.
    Alloc,
    /// It went.
    Free,
}

/// That a storage came or went, and on which stream, in eight bytes: a step of a large model has tens of thousands of them.
///
/// ```
/// use plimsoll_ledger::Event;
/// assert_eq!((Event::alloc(7).id(), Event::alloc(7).is_free()), (7, false));
/// assert_eq!((Event::free(7).id(), Event::free(7).is_free()), (7, true));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event {
    id: u32,
    stream: Stream,
    what: What,
}

impl Event {
    /// Storage `id` was allocated on the default stream.
    pub const fn alloc(id: u32) -> Self {
        Self::new(What::Alloc, id, Stream::DEFAULT)
    }

    /// Storage `id`, which lies on the default stream, was freed.
    pub const fn free(id: u32) -> Self {
        Self::new(What::Free, id, Stream::DEFAULT)
    }

    /// `what` happened to storage `id`, which lies on `stream`.
    pub const fn new(what: What, id: u32, stream: Stream) -> Self {
        Self { id, stream, what }
    }

    /// Whether the storage went.
    pub const fn is_free(self) -> bool {
        matches!(self.what, What::Free)
    }

    /// What happened.
    pub const fn what(self) -> What {
        self.what
    }

    /// Which storage.
    pub const fn id(self) -> u32 {
        self.id
    }

    /// The stream its block belongs to.
    pub const fn stream(self) -> Stream {
        self.stream
    }

    /// The same of another storage.
    pub const fn of(self, id: u32) -> Self {
        Self { id, ..self }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.is_free() { "free" } else { "alloc" };
        match self.stream.number() {
            0 => write!(f, "{name}({})", self.id),
            stream => write!(f, "{name}({}, stream {stream})", self.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_takes_eight_bytes() {
        assert_eq!(size_of::<Event>(), 8);
    }

    #[test]
    fn an_event_names_its_stream_where_it_is_another_than_the_first() {
        assert_eq!(format!("{:?}", Event::alloc(3)), "alloc(3)");
        assert_eq!(format!("{:?}", Event::new(What::Free, 3, Stream::new(2))), "free(3, stream 2)");
    }
}
