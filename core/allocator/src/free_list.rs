//! The free blocks of one pool, sorted as the best fit wants them.

/// The largest block, in units of 512 bytes: 32 TiB.
pub(super) const MAX_SIZE: u64 = (1 << 36) - 1;
/// The largest address, in units of 512 bytes: 256 TiB.
pub(super) const MAX_ADDRESS: u64 = (1 << 39) - 1;

/// Which of the two pools; decides how a block's size and address share the 64 bits of its sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pool {
    /// Requests up to 1 MiB in segments of 2 MiB: 13 bits of size are enough, 39 hold the address.
    Small,
    /// Everything larger. All its blocks, rests included, exceed 1 MiB, so addresses in whole MiB tell them apart:
    /// 36 bits of size, 28 of address.
    Large,
}

impl Pool {
    /// Comparing keys compares (size, address).
    fn key(self, size: u64, address: u64) -> u64 {
        match self {
            Self::Small => (size << 39) | address,
            Self::Large => (size << 28) | (address >> 11),
        }
    }
}

/// A free block in the list.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    block: u32,
}

/// Bins of each doubling of the size.
const BINS_PER_DOUBLING: u32 = 4;
/// One past the bin of [`MAX_SIZE`].
const BINS: usize = (36 * BINS_PER_DOUBLING) as usize;

/// Which bin a block of `size` lies in; larger ones never lie in an earlier bin.
const fn bin_of(size: u64) -> usize {
    let doubling = size.ilog2();
    let quarter = ((size << 2) >> doubling) & 3;
    (doubling * BINS_PER_DOUBLING) as usize + quarter as usize
}

/// Where a block is in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    bin: usize,
    at: usize,
}

/// Free blocks by size. Four bins for each doubling, each in descending order: a step leaves some hundreds of free blocks, and
/// what an insertion or a removal moves are only those of a like size behind it.
#[derive(Clone, Debug)]
pub(super) struct FreeList {
    pool: Pool,
    bins: Vec<Vec<Entry>>,
    /// A bit for each bin that has blocks.
    filled: [u64; BINS.div_ceil(64)],
}

impl FreeList {
    pub fn new(pool: Pool) -> Self {
        Self { pool, bins: vec![Vec::new(); BINS], filled: [0; BINS.div_ceil(64)] }
    }

    /// Where the smallest block of at least `size` is, the lowest address among equals.
    pub fn best_fit(&self, size: u64) -> Option<Place> {
        if size > MAX_SIZE {
            return None;
        }
        let (bin, wanted) = (bin_of(size), self.pool.key(size, 0));
        // Everything before this position is large enough.
        let before = self.bins[bin].partition_point(|entry| entry.key >= wanted);
        if let Some(at) = before.checked_sub(1) {
            return Some(Place { bin, at });
        }
        let bin = self.next_filled(bin + 1)?;
        self.bins[bin].len().checked_sub(1).map(|at| Place { bin, at })
    }

    /// The block at a place.
    pub fn block(&self, Place { bin, at }: Place) -> u32 {
        self.bins[bin][at].block
    }

    /// Adds a block of this size and address.
    pub fn insert(&mut self, size: u64, address: u64, block: u32) {
        let entry = Entry { key: self.pool.key(size, address), block };
        let bin = bin_of(size);
        let at = self.position(bin, entry.key);
        self.bins[bin].insert(at, entry);
        self.filled[bin / 64] |= 1 << (bin % 64);
    }

    /// Where the block of this size and address is.
    pub fn find(&self, size: u64, address: u64) -> Place {
        let (bin, key) = (bin_of(size), self.pool.key(size, address));
        let at = self.position(bin, key);
        debug_assert_eq!(self.bins[bin].get(at).map(|entry| entry.key), Some(key));
        Place { bin, at }
    }

    /// Takes the block at a place out.
    pub fn remove(&mut self, Place { bin, at }: Place) {
        self.bins[bin].remove(at);
        self.note_emptied(bin);
    }

    /// The block at this place now has this size and address. In its bin it mostly stays where it is or overtakes a few;
    /// after a model's gradients were freed one by one, some hundreds of the same size.
    pub fn resize(&mut self, place: Place, size: u64, address: u64) {
        let Place { bin, at } = place;
        if bin_of(size) != bin {
            let block = self.block(place);
            self.remove(place);
            self.insert(size, address, block);
            return;
        }
        let entries = &mut self.bins[bin];
        let entry = Entry { key: self.pool.key(size, address), block: entries[at].block };
        let (before, after) = (&entries[..at], &entries[at + 1..]);
        let new = if before.last().is_some_and(|last| last.key < entry.key) {
            let new = before.partition_point(|e| e.key > entry.key);
            entries.copy_within(new..at, new + 1);
            new
        } else if after.first().is_some_and(|first| first.key > entry.key) {
            let new = at + after.partition_point(|e| e.key > entry.key);
            entries.copy_within(at + 1..new + 1, at);
            new
        } else {
            at
        };
        entries[new] = entry;
    }

    /// Drops the entries whose block `keep` turns down.
    pub fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        for bin in 0..BINS {
            self.bins[bin].retain(|entry| keep(entry.block));
            self.note_emptied(bin);
        }
    }

    /// Where `key` is in its bin, or would be.
    fn position(&self, bin: usize, key: u64) -> usize {
        self.bins[bin].partition_point(|entry| entry.key > key)
    }

    /// The first bin from this one on that has blocks.
    fn next_filled(&self, bin: usize) -> Option<usize> {
        let from = bin / 64;
        let words = self.filled.iter().enumerate().skip(from);
        let mut masked = words.map(|(at, word)| (at, if at == from { word & (u64::MAX << (bin % 64)) } else { *word }));
        masked.find(|(_, word)| *word != 0).map(|(at, word)| at * 64 + word.trailing_zeros() as usize)
    }

    fn note_emptied(&mut self, bin: usize) {
        if self.bins[bin].is_empty() {
            self.filled[bin / 64] &= !(1 << (bin % 64));
        }
    }
}

#[cfg(test)]
impl FreeList {
    pub fn contains(&self, block: u32) -> bool {
        self.bins.iter().flatten().filter(|entry| entry.block == block).count() == 1
    }

    pub fn is_sorted(&self) -> bool {
        let sorted = self.bins.iter().all(|bin| bin.is_sorted_by(|a, b| a.key > b.key));
        let marked = |(bin, entries): (usize, &Vec<Entry>)| {
            let filled = self.filled[bin / 64] >> (bin % 64) & 1 == 1;
            filled != entries.is_empty()
        };
        sorted && self.bins.iter().enumerate().all(marked)
    }
}

#[cfg(test)]
mod tests {
    use super::{BINS, FreeList, MAX_SIZE, Pool, bin_of};

    #[test]
    fn a_larger_block_is_in_no_earlier_bin() {
        assert_eq!((bin_of(1), bin_of(4), bin_of(5), bin_of(7), bin_of(8)), (0, 8, 9, 11, 12));
        assert!((1..5000).all(|size| bin_of(size) <= bin_of(size + 1)));
        assert_eq!(bin_of(MAX_SIZE), BINS - 1);
    }

    /// Where the bin of the wanted size has only smaller blocks, the next bin that has any gives its smallest.
    #[test]
    fn the_best_fit_may_be_bins_away() {
        let mut list = FreeList::new(Pool::Large);
        for (block, size) in [4100, 5000, 1 << 20, MAX_SIZE].into_iter().enumerate() {
            list.insert(size, block as u64 * 2048, block as u32);
        }
        let fit = |list: &FreeList, size| list.best_fit(size).map(|place| list.block(place));
        assert_eq!(
            [4096, 4101, 5001, (1 << 20) + 1].map(|size| fit(&list, size)),
            [Some(0), Some(1), Some(2), Some(3)]
        );
        list.remove(list.find(1 << 20, 2 * 2048));
        assert_eq!((fit(&list, 5001), fit(&list, MAX_SIZE + 1)), (Some(3), None));
        assert!(list.is_sorted());
    }
}
