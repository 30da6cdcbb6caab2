//! The free blocks of one pool of one stream, as the best fit wants them.

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

    const fn new(address: u64, block: u32) -> Self {
        Self((address << Self::BLOCK_BITS) | block as u64)
    }

    const fn address(self) -> u64 {
        self.0 >> Self::BLOCK_BITS
    }

    const fn block(self) -> u32 {
        (self.0 & ((1 << Self::BLOCK_BITS) - 1)) as u32
    }
}

/// Bins of each doubling of the size.
const BINS_PER_DOUBLING: u32 = 4;

/// Which bin blocks of `size` lie in; larger ones never lie in an earlier bin.
const fn bin_of(size: u64) -> usize {
    let doubling = size.ilog2();
    let quarter = ((size << 2) >> doubling) & 3;
    (doubling * BINS_PER_DOUBLING) as usize + quarter as usize
}

/// The first bin from this one on whose bit is set.
fn next_filled(filled: &[u64], bin: usize) -> Option<usize> {
    let from = bin / 64;
    let words = filled.iter().enumerate().skip(from);
    let mut masked = words.map(|(at, word)| (at, if at == from { word & (u64::MAX << (bin % 64)) } else { *word }));
    masked.find(|(_, word)| *word != 0).map(|(at, word)| at * 64 + word.trailing_zeros() as usize)
}

/// Free blocks by size and address. The two pools are used too differently to be kept alike.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeList {
    small: SmallBlocks,
    large: LargeBlocks,
}

impl FreeList {
    /// Takes out the smallest block of at least `size`, the lowest address among equals, and says which it is.
    pub fn take_best_fit(&mut self, pool: Pool, size: u64) -> Option<u32> {
        match pool {
            Pool::Small => self.small.take_best_fit(size),
            Pool::Large => self.large.take_best_fit(size),
        }
    }

    /// Adds a block of this size and address.
    pub fn insert(&mut self, pool: Pool, size: u64, address: u64, block: u32) {
        match pool {
            Pool::Small => self.small.insert(size, address, block),
            Pool::Large => self.large.insert(size, address, block),
        }
    }

    /// Takes out the block of this size and address.
    pub fn remove(&mut self, pool: Pool, size: u64, address: u64) {
        match pool {
            Pool::Small => self.small.remove(size, address),
            Pool::Large => self.large.remove(size, address),
        }
    }

    /// Every block, of each pool sizes ascending.
    pub fn blocks(&self) -> Vec<u32> {
        self.small.blocks().into_iter().chain(self.large.blocks()).collect()
    }
}

#[cfg(test)]
impl FreeList {
    pub fn contains(&self, block: u32) -> bool {
        self.blocks().into_iter().filter(|b| *b == block).count() == 1
    }

    /// Whether everything lies in its order, and bins know which have blocks.
    pub fn is_sound(&self) -> bool {
        self.small.is_sound() && self.large.is_sound()
    }
}

#[cfg(test)]
mod tests {
    use super::{BINS_PER_DOUBLING, FreeList, MAX_SIZE, Pool, bin_of};

    #[test]
    fn a_larger_block_is_in_no_earlier_bin() {
        assert_eq!((bin_of(1), bin_of(4), bin_of(5), bin_of(7), bin_of(8)), (0, 8, 9, 11, 12));
        assert!((1..5000).all(|size| bin_of(size) <= bin_of(size + 1)));
        assert_eq!(bin_of(MAX_SIZE), (36 * BINS_PER_DOUBLING) as usize - 1);
    }

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
            list.remove(pool, sizes[2], 2 * 4096);
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
