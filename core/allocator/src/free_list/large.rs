//! The free blocks of the large pool.
//!
//! A training step has some dozens of sizes and frees thousands of blocks of each, so blocks of one size lie together
//! ([`Class`]). Sizes that have blocks are found through bins, four for each doubling of the size.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::class::Class;
use super::{MAX_SIZE, Place};

/// Bins of each doubling of the size.
const BINS_PER_DOUBLING: u32 = 4;

/// One past the bin of [`MAX_SIZE`].
const BINS: usize = (36 * BINS_PER_DOUBLING) as usize;

/// Sizes asked for of late, whose classes need not be looked up.
const RECENT: usize = 64;

/// Free blocks by size and address.
#[derive(Clone, Debug)]
pub(super) struct LargeBlocks {
    classes: Vec<Class>,
    class_of: HashMap<u64, u32, FxBuildHasher>,
    recent: [(u64, u32); RECENT],
    /// The classes of each bin, sizes ascending.
    bins: Vec<Vec<u32>>,
    /// How many classes of each bin have blocks.
    counts: [u32; BINS],
    /// A bit for each bin that has blocks.
    filled: [u64; BINS.div_ceil(64)],
}

impl Default for LargeBlocks {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            class_of: HashMap::default(),
            recent: [(0, 0); RECENT],
            bins: vec![Vec::new(); BINS],
            counts: [0; BINS],
            filled: [0; BINS.div_ceil(64)],
        }
    }
}

impl LargeBlocks {
    /// Takes out the smallest block of at least `size`, the lowest address among equals.
    #[inline]
    pub fn take_best_fit(&mut self, size: u64) -> Option<u32> {
        let exact = self.class(size).filter(|class| !self.classes[*class as usize].is_empty());
        let class = match exact {
            Some(class) => class,
            None => self.larger(size)?,
        };
        let class = &mut self.classes[class as usize];
        let place = class.take_lowest()?;
        if class.is_empty() {
            let size = class.size;
            self.note_emptied(size);
        }
        Some(place.block())
    }

    /// Adds a block of this size.
    #[inline]
    pub fn insert(&mut self, size: u64, place: Place) {
        let class = self.class(size).unwrap_or_else(|| self.add_class(size));
        if self.classes[class as usize].insert(place) {
            let bin = bin_of(size);
            self.counts[bin] += 1;
            self.filled[bin / 64] |= 1 << (bin % 64);
        }
    }

    /// Takes out a block of this size that is there.
    #[inline]
    pub fn remove(&mut self, size: u64, place: Place) {
        let Some(class) = self.class(size) else { return };
        if self.classes[class as usize].remove(place) {
            self.note_emptied(size);
        }
    }

    /// Every block of at least this size, sizes ascending.
    pub fn blocks(&self, size: u64) -> Vec<u32> {
        let classes = self.bins.iter().flatten().map(|class| &self.classes[*class as usize]);
        classes.filter(|class| class.size >= size).flat_map(|class| class.places().map(Place::block)).collect()
    }

    /// The class of a size that was seen before.
    #[inline]
    fn class(&mut self, size: u64) -> Option<u32> {
        let slot = (size.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize;
        let (known, class) = self.recent[slot];
        if known == size {
            return Some(class);
        }
        let class = *self.class_of.get(&size)?;
        self.recent[slot] = (size, class);
        Some(class)
    }

    #[cold]
    fn add_class(&mut self, size: u64) -> u32 {
        let class = self.classes.len() as u32;
        self.classes.push(Class::new(size));
        self.class_of.insert(size, class);
        let bin = &mut self.bins[bin_of(size)];
        let at = bin.partition_point(|other| self.classes[*other as usize].size < size);
        bin.insert(at, class);
        class
    }

    /// The class of the next larger size that has blocks.
    #[inline(never)]
    fn larger(&self, size: u64) -> Option<u32> {
        if size > MAX_SIZE {
            return None;
        }
        let has_blocks = |class: &&u32| !self.classes[**class as usize].is_empty();
        let bin = bin_of(size);
        if self.counts[bin] > 0 {
            let classes = &self.bins[bin];
            let at = classes.partition_point(|class| self.classes[*class as usize].size <= size);
            if let Some(class) = classes[at..].iter().find(has_blocks) {
                return Some(*class);
            }
        }
        self.bins[next_filled(&self.filled, bin + 1)?].iter().find(has_blocks).copied()
    }

    /// The last block of this size was taken out.
    #[inline]
    fn note_emptied(&mut self, size: u64) {
        let bin = bin_of(size);
        self.counts[bin] -= 1;
        if self.counts[bin] == 0 {
            self.filled[bin / 64] &= !(1 << (bin % 64));
        }
    }
}

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

#[cfg(test)]
impl LargeBlocks {
    /// Whether everything lies in its order, and bins know which have blocks.
    pub fn is_sound(&self) -> bool {
        let class = |class: &u32| &self.classes[*class as usize];
        let sizes: Vec<u64> = self.bins.iter().flatten().map(|c| class(c).size).collect();
        let filled = |(bin, classes): (usize, &Vec<u32>)| {
            let count = classes.iter().filter(|c| !class(c).is_empty()).count();
            count == self.counts[bin] as usize && (count > 0) == (self.filled[bin / 64] >> (bin % 64) & 1 == 1)
        };
        sizes.is_sorted_by(|a, b| a < b)
            && self.classes.iter().all(Class::is_sound)
            && self.bins.iter().enumerate().all(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::{BINS_PER_DOUBLING, MAX_SIZE, bin_of};

    #[test]
    fn a_larger_block_is_in_no_earlier_bin() {
        assert_eq!((bin_of(1), bin_of(4), bin_of(5), bin_of(7), bin_of(8)), (0, 8, 9, 11, 12));
        assert!((1..5000).all(|size| bin_of(size) <= bin_of(size + 1)));
        assert_eq!(bin_of(MAX_SIZE), (36 * BINS_PER_DOUBLING) as usize - 1);
    }
}
