//! PyTorch's allocator of page-locked memory (`CachingHostAllocatorImpl` in `ATen/core/CachingHostAllocator.h`, 2.11).
//!
//! A request is rounded up to a power of two and served by a free block of exactly that size, else by a new one; a block that is let go of
//! waits for the next request of its size and is never given back.

use plimsoll_ground::Bytes;

/// Sizes are powers of two that a u64 holds.
const CLASSES: usize = 64;

/// The page-locked blocks of one process.
#[derive(Clone, Debug)]
pub struct HostAllocator {
    /// How many blocks of each power of two are free.
    free: [u64; CLASSES],
    allocated: u64,
}

impl Default for HostAllocator {
    fn default() -> Self {
        Self { free: [0; CLASSES], allocated: 0 }
    }
}

impl HostAllocator {
    /// A block of at least `size`. None is taken for nothing, and none of more than 2^62 bytes.
    pub fn alloc(&mut self, size: Bytes) {
        let Some((class, bytes)) = class(size) else { return };
        match self.free.get_mut(class) {
            Some(free) if *free > 0 => *free -= 1,
            _ => self.allocated = self.allocated.saturating_add(bytes),
        }
    }

    /// A block of that size is let go of.
    pub fn free(&mut self, size: Bytes) {
        let Some((class, _)) = class(size) else { return };
        if let Some(free) = self.free.get_mut(class) {
            *free += 1;
        }
    }

    /// What is page-locked, in use or not: `allocated_bytes` of `torch.cuda.host_memory_stats()`.
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
}
