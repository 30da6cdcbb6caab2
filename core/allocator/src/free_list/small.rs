//! The free blocks of the small pool.
//!
//! Small requests are cut off segments of 2 MiB, so nearly every free block has a size of its own, and another one after the
//! next request. Blocks lie in bins by size, four for each doubling; each bin is sorted.

use super::{Place, bin_of, next_filled};

/// One past the bin of the largest block, a whole segment.
const BINS: usize = 49;

/// A free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    size: u64,
    place: Place,
}

/// Free blocks of at most 2 MiB.
#[derive(Clone, Debug)]
pub(super) struct SmallBlocks {
    /// Each descending.
    bins: Vec<Vec<Entry>>,
    /// A bit for each bin that has blocks.
    filled: [u64; 1],
}

impl Default for SmallBlocks {
    fn default() -> Self {
        Self { bins: vec![Vec::new(); BINS], filled: [0] }
    }
}

impl SmallBlocks {
    /// Takes out the smallest block of at least `size`, the lowest address among equals, and says which it is.
    pub fn take_best_fit(&mut self, size: u64) -> Option<u32> {
        let bin = bin_of(size);
        // Everything before this position is large enough.
        let large_enough = self.bins[bin].partition_point(|entry| entry.size >= size);
        let (bin, at) = match large_enough.checked_sub(1) {
            Some(at) => (bin, at),
            None => {
                let bin = next_filled(&self.filled, bin + 1)?;
                (bin, self.bins[bin].len().checked_sub(1)?)
            }
        };
        Some(self.take(bin, at))
    }

    /// Adds a block of this size and address.
    pub fn insert(&mut self, size: u64, address: u64, block: u32) {
        let entry = Entry { size, place: Place::new(address, block) };
        let bin = bin_of(size);
        let at = self.bins[bin].partition_point(|other| *other > entry);
        self.bins[bin].insert(at, entry);
        self.filled[0] |= 1 << bin;
    }

    /// Takes out the block of this size and address.
    pub fn remove(&mut self, size: u64, address: u64) {
        let bin = bin_of(size);
        let at = self.bins[bin].partition_point(|other| (other.size, other.place.address()) > (size, address));
        if self.bins[bin].get(at).is_some_and(|found| (found.size, found.place.address()) == (size, address)) {
            self.take(bin, at);
        }
    }

    /// Every block, sizes ascending.
    pub fn blocks(&self) -> Vec<u32> {
        self.bins.iter().flat_map(|bin| bin.iter().rev().map(|entry| entry.place.block())).collect()
    }

    fn take(&mut self, bin: usize, at: usize) -> u32 {
        let entry = self.bins[bin].remove(at);
        if self.bins[bin].is_empty() {
            self.filled[0] &= !(1 << bin);
        }
        entry.place.block()
    }
}

#[cfg(test)]
impl SmallBlocks {
    /// Whether everything lies in its order, and bins know whether they have blocks.
    pub fn is_sound(&self) -> bool {
        let filled = |(bin, entries): (usize, &Vec<Entry>)| (self.filled[0] >> bin & 1 == 1) != entries.is_empty();
        self.bins.iter().all(|bin| bin.is_sorted_by(|a, b| a > b)) && self.bins.iter().enumerate().all(filled)
    }
}
