//! Blocks and how they lie next to one another in their segments.

use std::ops::{Index, IndexMut};

use plimsoll_ledger::Stream;

use super::free_list::Pool;

/// "No block": the edge of a segment, or a storage without bytes.
pub(super) const NONE: u32 = u32::MAX;

/// A piece of a segment, in use or free. Sizes and addresses are in units of 512 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub size: u64,
    pub address: u64,
    /// The block before it in the same segment.
    pub prev: u32,
    /// The block behind it in the same segment.
    pub next: u32,
    /// Whether it lies in the free list of its pool.
    pub free: bool,
    /// Which pool it belongs to.
    pub pool: Pool,
    /// The stream it was allocated on.
    pub stream: Stream,
}

/// All blocks, densely, with the slots of vanished ones used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    slots: Vec<Block>,
    vacant: Vec<u32>,
}

impl Blocks {
    /// With room for so many.
    pub fn with_capacity(blocks: usize) -> Self {
        Self { slots: Vec::with_capacity(blocks), vacant: Vec::new() }
    }

    /// Stores a block and returns its index.
    #[inline]
    pub fn add(&mut self, block: Block) -> u32 {
        if let Some(index) = self.vacant.pop() {
            self[index] = block;
            index
        } else {
            // Memory ends long before 2^32 blocks do, so this never reaches NONE.
            self.slots.push(block);
            (self.slots.len() - 1) as u32
        }
    }

    /// Gives a slot back.
    #[inline]
    pub fn recycle(&mut self, index: u32) {
        self[index].free = false;
        self.vacant.push(index);
    }

    /// Cuts `units` off the front of a block as a new block in use. `index` keeps the rest.
    #[inline]
    pub fn split_front(&mut self, index: u32, units: u64) -> u32 {
        let Block { address, prev, pool, stream, .. } = self[index];
        let front = self.add(Block { size: units, address, prev, next: index, free: false, pool, stream });
        if prev != NONE {
            self[prev].next = front;
        }
        let rest = &mut self[index];
        rest.size -= units;
        rest.address += units;
        rest.prev = front;
        front
    }

    /// Merges the block behind `index` into it.
    #[inline]
    pub fn absorb_next(&mut self, index: u32) {
        let gone = self[index].next;
        let Block { size, next, .. } = self[gone];
        let block = &mut self[index];
        block.size += size;
        block.next = next;
        if next != NONE {
            self[next].prev = index;
        }
        self.recycle(gone);
    }
}

#[cfg(test)]
impl Blocks {
    /// Every block there is, with its index.
    pub fn live(&self) -> Vec<(u32, Block)> {
        let indices = 0..self.slots.len() as u32;
        indices.filter(|index| !self.vacant.contains(index)).map(|index| (index, self[index])).collect()
    }
}

impl Index<u32> for Blocks {
    type Output = Block;
    #[inline]
    fn index(&self, index: u32) -> &Block {
        &self.slots[index as usize]
    }
}

impl IndexMut<u32> for Blocks {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Block {
        &mut self.slots[index as usize]
    }
}
