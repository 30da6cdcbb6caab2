//! What a ledger is replayed through.

use plimsoll_ground::Bytes;
use plimsoll_ledger::Event;

use super::{CachingAllocator, ConfiguredAllocator, OutOfMemory};

/// An allocator that a ledger's events are given to.
pub trait Replay {
    /// Does what an event says; `size` says how large a storage is, which is asked of those that come alone.
    ///
    /// # Errors
    /// There is no room for it.
    fn apply(&mut self, event: Event, size: impl Fn(u32) -> Bytes) -> Result<(), OutOfMemory>;
    /// `torch.cuda.empty_cache()`
    fn empty_cache(&mut self);
    /// In use now.
    fn allocated(&self) -> Bytes;
    /// Taken from the driver now.
    fn reserved(&self) -> Bytes;
    /// What of that serves other streams than the default one, where the allocator keeps count of it.
    fn reserved_apart(&self) -> Option<Bytes>;
    /// The most that was in use since the peaks were forgotten.
    fn peak_allocated(&self) -> Bytes;
    /// The most that was taken from the driver since then.
    fn peak_reserved(&self) -> Bytes;
    /// Forgets both peaks.
    fn reset_peaks(&mut self);
    /// How often cached segments were released to make room.
    fn retries(&self) -> u32;
}

macro_rules! replays {
    ($($Allocator:ty, $apart:expr;)+) => {
        $(impl Replay for $Allocator {
            fn apply(&mut self, event: Event, size: impl Fn(u32) -> Bytes) -> Result<(), OutOfMemory> {
                if event.is_free() {
                    self.free(event.id());
                    return Ok(());
                }
                self.alloc(event.id(), size(event.id()), event.stream())
            }

            fn empty_cache(&mut self) {
                self.empty_cache();
            }

            fn allocated(&self) -> Bytes {
                self.allocated()
            }

            fn reserved(&self) -> Bytes {
                self.reserved()
            }

            fn reserved_apart(&self) -> Option<Bytes> {
                let apart: fn(&Self) -> Option<Bytes> = $apart;
                apart(self)
            }

            fn peak_allocated(&self) -> Bytes {
                self.peak_allocated()
            }

            fn peak_reserved(&self) -> Bytes {
                self.peak_reserved()
            }

            fn reset_peaks(&mut self) {
                self.reset_peaks();
            }

            fn retries(&self) -> u32 {
                self.retries()
            }
        })+
    };
}

replays! {
    CachingAllocator, |allocator| Some(allocator.reserved_apart());
    ConfiguredAllocator, |_| None;
}
