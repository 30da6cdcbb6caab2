//! The free blocks of the large pool.
//!
//! A training step has some dozens of sizes and frees thousands of blocks of each, so blocks of one size lie together, the
//! lowest address last: what was taken from there mostly comes back there. Sizes that have blocks are found through bins,
//! four for each doubling of the size.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use super::{BINS_PER_DOUBLING, MAX_SIZE, Place, bin_of, next_filled};

/// Free blocks of one size.
#[derive(Clone, Debug)]
struct Class {
    size: u64,
    bin: usize,
    /// Descending by their address. Open at both ends: thousands of layers free theirs in ascending order as well as in
    /// descending order, and to make room at the front of a plain list would move all that are there.
    blocks: VecDeque<Place>,
}

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
    /// Takes out the smallest block of at least `size`, the lowest address among equals, and says which it is.
    pub fn take_best_fit(&mut self, size: u64) -> Option<u32> {
        let exact = self.class(size).filter(|class| !self.classes[*class as usize].blocks.is_empty());
        let class = match exact {
            Some(class) => class,
            None => self.larger(size)?,
        };
        let class = &mut self.classes[class as usize];
        let place = class.blocks.pop_back()?;
        if class.blocks.is_empty() {
            let bin = class.bin;
            self.note_emptied(bin);
        }
        Some(place.block())
    }

    /// Adds a block of this size and address.
    pub fn insert(&mut self, size: u64, address: u64, block: u32) {
        let class = self.class(size).unwrap_or_else(|| self.add_class(size));
        let class = &mut self.classes[class as usize];
        let place = Place::new(address, block);
        match class.blocks.back() {
            Some(lowest) if *lowest < place => {
                let at = class.blocks.partition_point(|other| *other > place);
                class.blocks.insert(at, place);
            }
            Some(_) => class.blocks.push_back(place),
            None => {
                class.blocks.push_back(place);
                self.counts[class.bin] += 1;
                self.filled[class.bin / 64] |= 1 << (class.bin % 64);
            }
        }
    }

    /// Takes out the block of this size and address.
    pub fn remove(&mut self, size: u64, address: u64) {
        let Some(class) = self.class(size) else { return };
        let class = &mut self.classes[class as usize];
        let at = match class.blocks.back() {
            Some(lowest) if lowest.address() == address => class.blocks.len() - 1,
            _ => class.blocks.partition_point(|other| other.address() > address),
        };
        if class.blocks.get(at).is_some_and(|found| found.address() == address) {
            class.blocks.remove(at);
            if class.blocks.is_empty() {
                let bin = class.bin;
                self.note_emptied(bin);
            }
        }
    }

    /// Every block, sizes ascending.
    pub fn blocks(&self) -> Vec<u32> {
        let classes = self.bins.iter().flatten();
        classes.flat_map(|class| self.classes[*class as usize].blocks.iter().map(|place| place.block())).collect()
    }

    /// The class of a size that was seen before.
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

    fn add_class(&mut self, size: u64) -> u32 {
        let class = self.classes.len() as u32;
        self.classes.push(Class { size, bin: bin_of(size), blocks: VecDeque::new() });
        self.class_of.insert(size, class);
        let bin = &mut self.bins[bin_of(size)];
        let at = bin.partition_point(|other| self.classes[*other as usize].size < size);
        bin.insert(at, class);
        class
    }

    /// The class of the next larger size that has blocks.
    fn larger(&self, size: u64) -> Option<u32> {
        if size > MAX_SIZE {
            return None;
        }
        let has_blocks = |class: &&u32| !self.classes[**class as usize].blocks.is_empty();
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

    /// The last block of a class of this bin was taken out.
    fn note_emptied(&mut self, bin: usize) {
        self.counts[bin] -= 1;
        if self.counts[bin] == 0 {
            self.filled[bin / 64] &= !(1 << (bin % 64));
        }
    }
}

#[cfg(test)]
impl LargeBlocks {
    /// Whether everything lies in its order, and bins know which have blocks.
    pub fn is_sound(&self) -> bool {
        let class = |class: &u32| &self.classes[*class as usize];
        let sizes: Vec<u64> = self.bins.iter().flatten().map(|c| class(c).size).collect();
        let filled = |(bin, classes): (usize, &Vec<u32>)| {
            let count = classes.iter().filter(|c| !class(c).blocks.is_empty()).count();
            count == self.counts[bin] as usize && (count > 0) == (self.filled[bin / 64] >> (bin % 64) & 1 == 1)
        };
        sizes.is_sorted_by(|a, b| a < b)
            && self.classes.iter().all(|c| c.blocks.iter().is_sorted_by(|a, b| a > b))
            && self.bins.iter().enumerate().all(filled)
    }
}
