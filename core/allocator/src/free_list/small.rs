//! The free blocks of the small pool.
//!
//! Small requests are cut off segments of 2 MiB, so nearly every free block has a size of its own, and another one after the
//! next request. There are few sizes: each has a place in a table, and a bit that says whether it has blocks.

use super::Place;
use super::class::Class;

/// One past the size of the largest block, a whole segment, in units of 512 bytes.
const SIZES: usize = 4096 + 1;

/// No block had this size yet.
const NONE: u16 = u16::MAX;

/// Free blocks of at most 2 MiB.
#[derive(Clone, Debug)]
pub(super) struct SmallBlocks {
    /// Of every size that a block had.
    classes: Vec<Class>,
    /// By size. Empty before the first block.
    class_of: Vec<u16>,
    /// A bit for each size that has blocks.
    filled: [u64; SIZES.div_ceil(64)],
    /// A bit for each word of `filled` that is not zero.
    words: [u64; 2],
}

impl Default for SmallBlocks {
    fn default() -> Self {
        Self { classes: Vec::new(), class_of: Vec::new(), filled: [0; SIZES.div_ceil(64)], words: [0; 2] }
    }
}

impl SmallBlocks {
    /// Takes out the smallest block of at least `size`, the lowest address among equals.
    #[inline]
    pub fn take_best_fit(&mut self, size: u64) -> Option<u32> {
        let size = self.filled_from(size as usize)?;
        let class = &mut self.classes[self.class_of[size] as usize];
        let place = class.take_lowest()?;
        if class.is_empty() {
            self.note_emptied(size);
        }
        Some(place.block())
    }

    /// Adds a block of this size.
    #[inline]
    pub fn insert(&mut self, size: u64, place: Place) {
        let size = size as usize;
        let class = match self.class_of.get(size) {
            Some(class) if *class != NONE => *class,
            _ => self.add_class(size),
        };
        if self.classes[class as usize].insert(place) {
            self.filled[size / 64] |= 1 << (size % 64);
            self.words[size / 4096] |= 1 << (size / 64 % 64);
        }
    }

    /// Takes out a block of this size that is there.
    #[inline]
    pub fn remove(&mut self, size: u64, place: Place) {
        let size = size as usize;
        let Some(class) = self.class_of.get(size).and_then(|class| self.classes.get_mut(*class as usize)) else {
            return;
        };
        if class.remove(place) {
            self.note_emptied(size);
        }
    }

    /// Every block of at least this size, sizes ascending.
    pub fn blocks(&self, size: u64) -> Vec<u32> {
        let sizes = self.class_of.get(size as usize..).unwrap_or_default();
        let known = sizes.iter().filter(|class| **class != NONE);
        known.flat_map(|class| self.classes[*class as usize].places().map(Place::block)).collect()
    }

    /// The smallest size from this one on that has blocks.
    #[inline]
    fn filled_from(&self, size: usize) -> Option<usize> {
        let word = size / 64;
        let here = self.filled.get(word)? & (u64::MAX << (size % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let word = next_bit(&self.words, word + 1)?;
        Some(word * 64 + self.filled[word].trailing_zeros() as usize)
    }

    #[cold]
    fn add_class(&mut self, size: usize) -> u16 {
        if self.class_of.is_empty() {
            self.class_of = vec![NONE; SIZES];
        }
        let class = self.classes.len() as u16;
        self.classes.push(Class::new(size as u64));
        self.class_of[size] = class;
        class
    }

    #[inline]
    fn note_emptied(&mut self, size: usize) {
        self.filled[size / 64] &= !(1 << (size % 64));
        if self.filled[size / 64] == 0 {
            self.words[size / 4096] &= !(1 << (size / 64 % 64));
        }
    }
}

/// The first bit from `from` on that is set.
fn next_bit(words: &[u64; 2], from: usize) -> Option<usize> {
    let first = words.get(from / 64)? & (u64::MAX << (from % 64));
    if first != 0 {
        return Some(from / 64 * 64 + first.trailing_zeros() as usize);
    }
    let second = *words.get(from / 64 + 1)?;
    (second != 0).then(|| (from / 64 + 1) * 64 + second.trailing_zeros() as usize)
}

#[cfg(test)]
impl SmallBlocks {
    /// Whether everything lies in its order, and the bits say which sizes have blocks.
    pub fn is_sound(&self) -> bool {
        let has_blocks = |size: usize| {
            let class = self.class_of.get(size).filter(|class| **class != NONE);
            class.is_some_and(|class| !self.classes[*class as usize].is_empty())
        };
        let bit = |words: &[u64], at: usize| words[at / 64] >> (at % 64) & 1 == 1;
        self.classes.iter().all(Class::is_sound)
            && (0..SIZES).all(|size| bit(&self.filled, size) == has_blocks(size))
            && (0..self.filled.len()).all(|word| bit(&self.words, word) == (self.filled[word] != 0))
    }
}
