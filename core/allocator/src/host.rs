//! PyTorch's allocator of page-locked memory (`CachingHostAllocatorImpl` in `ATen/core/CachingHostAllocator.h`, 2.11).
//!
//! A request is rounded up to a power of two and served by a free block of exactly that size, else by a new one; a block that is let go of
//! waits for the next request of its size and is never given back. With `pinned_reserve_segment_size_mb` new blocks are cut from a segment
//! that was locked ahead, while there is room (`PinnedReserveSegment`). What registers memory and in how many threads
//! (`pinned_use_cuda_host_register`, `pinned_num_register_threads`), and who looks for blocks that came back
//! (`pinned_use_background_threads`), changes no size: all are rounded before.

use plimsoll_ground::Bytes;

/// Sizes are powers of two that a u64 holds.
const CLASSES: usize = 64;

/// The page-locked blocks of one process.
#[derive(Clone, Debug)]
pub struct HostAllocator {
    /// How many blocks of each power of two are free.
    free: [u64; CLASSES],
    allocated: u64,
    /// What is locked ahead with the first block, and what of it is left then.
    reserve: u64,
    left: Option<u64>,
}

/// What a block that lies in the reserve is rounded up to.
const PAGE: u64 = 4096;

impl Default for HostAllocator {
    fn default() -> Self {
        Self { free: [0; CLASSES], allocated: 0, reserve: 0, left: None }
    }
}

impl HostAllocator {
    /// With a segment of so much that is locked ahead.
    pub fn with_reserve(reserve: Bytes) -> Self {
        Self { reserve: reserve.get(), ..Self::default() }
    }

    /// A block of at least `size`. None is taken for nothing, and none of more than 2^62 bytes.
    pub fn alloc(&mut self, size: Bytes) {
        let Some((class, bytes)) = class(size) else { return };
        match self.free.get_mut(class) {
            Some(free) if *free > 0 => *free -= 1,
            _ => self.take(bytes),
        }
    }

    /// A new block.
    fn take(&mut self, bytes: u64) {
        let left = *self.left.get_or_insert_with(|| {
            self.allocated = self.allocated.saturating_add(self.reserve);
            self.reserve
        });
        match left.checked_sub(bytes.next_multiple_of(PAGE)) {
            Some(left) => self.left = Some(left),
            None => self.allocated = self.allocated.saturating_add(bytes),
        }
    }

    /// A block of that size is let go of.
    pub fn free(&mut self, size: Bytes) {
        let Some((class, _)) = class(size) else { return };
        if let Some(free) = self.free.get_mut(class) {
            *free += 1;
        }
    }

    /// What is page-locked, in use or not: `allocated_bytes` of `torch.cuda.host_memory_stats()`, and of a segment that was locked ahead
    /// all of it.
    pub const fn allocated(&self) -> Bytes {
        Bytes::new(self.allocated)
    }
}

/// The power of two that serves a request, and its bytes.
fn class(size: Bytes) -> Option<(usize, u64)> {
    let bytes = Some(size.get()).filter(|bytes| *bytes > 0)?.checked_next_power_of_two()?;
    Some((bytes.trailing_zeros() as usize, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_powers_of_two_and_stay() {
        let mut host = HostAllocator::default();
        host.alloc(Bytes::new(1025));
        host.alloc(Bytes::ZERO);
        assert_eq!(host.allocated(), Bytes::new(2048));
        host.free(Bytes::new(1025));
        host.alloc(Bytes::new(2000));
        assert_eq!(host.allocated(), Bytes::new(2048));
        // A free block serves its own size only.
        host.free(Bytes::new(2000));
        host.alloc(Bytes::new(1024));
        assert_eq!(host.allocated(), Bytes::new(3072));
        host.alloc(Bytes::new(u64::MAX));
        assert_eq!(host.allocated(), Bytes::new(3072));
    }

    /// As PyTorch 2.11 did it on a hollow card: 1000 bytes, 3 MiB and 100 MiB, with 64 MiB locked ahead.
    #[test]
    fn blocks_lie_in_what_was_locked_ahead() {
        let mut host = HostAllocator::with_reserve(Bytes::from_mib(64));
        assert_eq!(host.allocated(), Bytes::ZERO);
        host.alloc(Bytes::new(1000));
        assert_eq!(host.allocated(), Bytes::from_mib(64));
        host.alloc(Bytes::from_mib(3));
        host.alloc(Bytes::from_mib(100));
        assert_eq!(host.allocated(), Bytes::from_mib(64 + 128));
    }
}
