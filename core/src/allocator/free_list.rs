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

/// Free blocks in descending order: requests are mostly served by blocks far smaller than the largest cached ones, so
/// the entries behind them, which an insertion or a removal moves, are few. There are at most some hundreds in all, and
/// no tree beats that; a block that shrinks or grows in place moves only past the blocks it overtakes.
#[derive(Clone, Debug)]
pub(super) struct FreeList {
    pool: Pool,
    entries: Vec<Entry>,
}

impl FreeList {
    pub fn new(pool: Pool) -> Self {
        Self { pool, entries: Vec::with_capacity(256) }
    }

    /// Position of the smallest block of at least `size`, the lowest address among equals.
    pub fn best_fit(&self, size: u64) -> Option<usize> {
        if size > MAX_SIZE {
            return None;
        }
        let wanted = self.pool.key(size, 0);
        // Everything before this position is large enough.
        self.entries.partition_point(|entry| entry.key >= wanted).checked_sub(1)
    }

    /// The block at a position.
    pub fn block(&self, at: usize) -> u32 {
        self.entries[at].block
    }

    /// Adds a block of this size and address.
    pub fn insert(&mut self, size: u64, address: u64, block: u32) {
        let entry = Entry { key: self.pool.key(size, address), block };
        let at = self.position(entry.key);
        self.entries.insert(at, entry);
    }

    /// Where the block of this size and address is.
    pub fn find(&self, size: u64, address: u64) -> usize {
        let key = self.pool.key(size, address);
        let at = self.position(key);
        debug_assert_eq!(self.entries.get(at).map(|entry| entry.key), Some(key));
        at
    }

    /// Takes the block at a position out.
    pub fn remove(&mut self, at: usize) {
        self.entries.remove(at);
    }

    /// The block at this position now has this size and address. It mostly stays where it is or overtakes a few; after a
    /// model's gradients were freed one by one, some hundreds of the same size.
    pub fn resize(&mut self, at: usize, size: u64, address: u64) {
        let entry = Entry { key: self.pool.key(size, address), block: self.entries[at].block };
        let (before, after) = (&self.entries[..at], &self.entries[at + 1..]);
        let new = if before.last().is_some_and(|last| last.key < entry.key) {
            let new = before.partition_point(|e| e.key > entry.key);
            self.entries.copy_within(new..at, new + 1);
            new
        } else if after.first().is_some_and(|first| first.key > entry.key) {
            let new = at + after.partition_point(|e| e.key > entry.key);
            self.entries.copy_within(at + 1..new + 1, at);
            new
        } else {
            at
        };
        self.entries[new] = entry;
    }

    /// Drops the entries whose block `keep` turns down.
    pub fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        self.entries.retain(|entry| keep(entry.block));
    }

    /// Where `key` is, or would be.
    fn position(&self, key: u64) -> usize {
        self.entries.partition_point(|entry| entry.key > key)
    }
}

#[cfg(test)]
impl FreeList {
    pub fn contains(&self, block: u32) -> bool {
        self.entries.iter().filter(|entry| entry.block == block).count() == 1
    }

    pub fn is_sorted(&self) -> bool {
        self.entries.is_sorted_by(|a, b| a.key > b.key)
    }
}
