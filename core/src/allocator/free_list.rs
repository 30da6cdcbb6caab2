//! The free blocks of one pool, sorted as the best fit wants them.

/// The largest block, in units of 512 bytes: 64 PiB.
pub(super) const MAX_SIZE: u64 = (1 << 47) - 1;
/// The largest address, in units of 512 bytes: 256 PiB.
pub(super) const MAX_ADDRESS: u64 = (1 << 49) - 1;

/// A free block as one number: size (47 bits), address (49), index (32). Comparing it compares (size, address), and
/// the list stays one flat array of 16 byte entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u128);

impl Key {
    pub fn new(size: u64, address: u64, index: u32) -> Self {
        debug_assert!(size <= MAX_SIZE && address <= MAX_ADDRESS);
        Self((u128::from(size) << 81) | (u128::from(address) << 32) | u128::from(index))
    }

    /// Below every block of this size, above every smaller one.
    fn first_of_size(size: u64) -> Self {
        Self(u128::from(size) << 81)
    }

    fn index(self) -> u32 {
        self.0 as u32
    }
}

/// Keys in ascending order. There are at most some hundreds, so moving the entries between two positions beats any tree;
/// a block that shrinks or grows in place moves only past the blocks it overtakes.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeList {
    keys: Vec<Key>,
}

impl FreeList {
    /// Position of the smallest block of at least `units`, the lowest address among equals.
    pub fn best_fit(&self, units: u64) -> Option<usize> {
        let wanted = if units <= MAX_SIZE { Key::first_of_size(units) } else { return None };
        let at = self.position(wanted);
        (at < self.keys.len()).then_some(at)
    }

    /// The block at a position.
    pub fn block(&self, at: usize) -> u32 {
        self.keys[at].index()
    }

    pub fn insert(&mut self, key: Key) {
        let at = self.position(key);
        self.keys.insert(at, key);
    }

    pub fn remove(&mut self, key: Key) {
        let at = self.position(key);
        debug_assert_eq!(self.keys.get(at), Some(&key));
        self.keys.remove(at);
    }

    pub fn remove_at(&mut self, at: usize) {
        self.keys.remove(at);
    }

    /// `old`, which is in the list, is now `new`.
    pub fn replace(&mut self, old: Key, new: Key) {
        let at = self.position(old);
        debug_assert_eq!(self.keys.get(at), Some(&old));
        self.replace_at(at, new);
    }

    /// The entry at this position is now `new`.
    pub fn replace_at(&mut self, at: usize, new: Key) {
        if new > self.keys[at] {
            let to = at + self.keys[at + 1..].partition_point(|&k| k < new);
            self.keys.copy_within(at + 1..=to, at);
            self.keys[to] = new;
        } else {
            let to = self.keys[..at].partition_point(|&k| k < new);
            self.keys.copy_within(to..at, to + 1);
            self.keys[to] = new;
        }
    }

    /// Drops the entries whose block `keep` turns down.
    pub fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        self.keys.retain(|key| keep(key.index()));
    }

    /// Where `key` is, or would be.
    fn position(&self, key: Key) -> usize {
        self.keys.partition_point(|&k| k < key)
    }
}
