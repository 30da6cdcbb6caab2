//! The free blocks of one pool of one stream, as the best fit wants them.

mod class;
mod large;
mod small;

use large::LargeBlocks;
use small::SmallBlocks;

/// The largest block, in units of 512 bytes: 32 TiB.
pub(super) const MAX_SIZE: u64 = (1 << 36) - 1;
/// The largest address, in units of 512 bytes: 256 TiB.
pub(super) const MAX_ADDRESS: u64 = (1 << 39) - 1;

/// Which of the two pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pool {
    /// Requests up to 1 MiB in segments of 2 MiB.
    Small,
    /// Everything larger.
    Large,
}

/// An address and the block that lies there, in one number that sorts by the address. Memory ends long before there are
/// 2^25 blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u64);

impl Place {
    const BLOCK_BITS: u32 = 25;
    /// No place: above all addresses.
    const NONE: Self = Self(u64::MAX);

    const fn new(address: u64, block: u32) -> Self {
        Self((address << Self::BLOCK_BITS) | block as u64)
    }

    const fn block(self) -> u32 {
        (self.0 & ((1 << Self::BLOCK_BITS) - 1)) as u32
    }
}

/// Free blocks by size and address. The two pools are used too differently to be kept alike.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeList {
    small: SmallBlocks,
    large: LargeBlocks,
}

impl FreeList {
    /// Takes out the smallest block of at least `size`, the lowest address among equals, and says which it is.
    #[inline]
    pub fn take_best_fit(&mut self, pool: Pool, size: u64) -> Option<u32> {
        match pool {
            Pool::Small => self.small.take_best_fit(size),
            Pool::Large => self.large.take_best_fit(size),
        }
    }

    /// Adds a block of this size and address.
    #[inline]
    pub fn insert(&mut self, pool: Pool, size: u64, address: u64, block: u32) {
        let place = Place::new(address, block);
        match pool {
            Pool::Small => self.small.insert(size, place),
            Pool::Large => self.large.insert(size, place),
        }
    }

    /// Takes out a block of this size and address that is there.
    #[inline]
    pub fn remove(&mut self, pool: Pool, size: u64, address: u64, block: u32) {
        let place = Place::new(address, block);
        match pool {
            Pool::Small => self.small.remove(size, place),
            Pool::Large => self.large.remove(size, place),
        }
    }

    /// Every block of at least this size in its pool, of each pool sizes ascending.
    pub fn blocks(&self, at_least: impl Fn(Pool) -> u64) -> Vec<u32> {
        let (small, large) = (at_least(Pool::Small), at_least(Pool::Large));
        self.small.blocks(small).into_iter().chain(self.large.blocks(large)).collect()
    }
}

#[cfg(test)]
impl FreeList {
    pub fn contains(&self, block: u32) -> bool {
        self.blocks(|_| 0).into_iter().filter(|b| *b == block).count() == 1
    }

    /// Whether everything lies in its order, and bins know which have blocks.
    pub fn is_sound(&self) -> bool {
        self.small.is_sound() && self.large.is_sound()
    }
}

#[cfg(test)]
mod tests {
    use super::{FreeList, MAX_SIZE, Pool};

    /// Where the bin of the wanted size has only smaller blocks, the next bin that has any gives its smallest.
    #[test]
    fn the_best_fit_may_be_bins_away() {
        let sizes = [(Pool::Large, [4100, 5000, 1 << 20, MAX_SIZE]), (Pool::Small, [41, 50, 1024, 4096])];
        for (pool, sizes) in sizes {
            let mut list = FreeList::default();
            for (block, size) in sizes.into_iter().enumerate() {
                list.insert(pool, size, block as u64 * 4096, block as u32);
            }
            let fit = |list: &FreeList, size| list.clone().take_best_fit(pool, size);
            let asked = [sizes[0] - 1, sizes[0] + 1, sizes[1] + 1, sizes[2] + 1];
            assert_eq!(asked.map(|size| fit(&list, size)), [Some(0), Some(1), Some(2), Some(3)]);
            list.remove(pool, sizes[2], 2 * 4096, 2);
            assert_eq!((fit(&list, sizes[1] + 1), fit(&list, sizes[3] + 1)), (Some(3), None));
            assert!(list.is_sound());
        }
    }

    /// Among equals the lowest address is taken, in whatever order they came.
    #[test]
    fn the_lowest_address_goes_first() {
        for pool in [Pool::Small, Pool::Large] {
            let mut list = FreeList::default();
            for address in [40, 10, 30, 20, 50] {
                list.insert(pool, 8, address, address as u32);
            }
            let taken: Vec<u32> = std::iter::from_fn(|| list.take_best_fit(pool, 8)).collect();
            assert_eq!(taken, [10, 20, 30, 40, 50]);
        }
    }
}
