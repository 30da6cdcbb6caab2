//! The caching allocator with its settings: the algorithm of `c10/cuda/CUDACachingAllocator.cpp` as it stands there, where
//! [`super::CachingAllocator`] has that of the defaults alone and is made to be fast.

use std::collections::BTreeSet;

use plimsoll_ground::Bytes;
use plimsoll_ledger::Stream;

use super::OutOfMemory;
use super::settings::Settings;

mod grow;
mod release;

const MIB: u64 = 1 << 20;
/// `kMinBlockSize`
const LEAST: u64 = 512;
/// `kSmallSize`
const SMALL: u64 = MIB;
/// `kSmallBuffer`, and `kRoundLarge`
const SMALL_SEGMENT: u64 = 2 * MIB;
/// `kLargeBuffer`, and `max_non_split_rounding_size`
const LARGE_SEGMENT: u64 = 20 * MIB;
/// `kMinLargeAlloc`
const OWN_SEGMENT: u64 = 10 * MIB;
/// Where a card's memory has no end: the addresses of a segment that grows.
const WITHOUT_END: u64 = 1 << 50;

const NONE: usize = usize::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    size: u64,
    address: u64,
    prev: usize,
    next: usize,
    allocated: bool,
    /// Of a segment that grows: whether there is memory behind its addresses.
    mapped: bool,
    expandable: bool,
    large: bool,
    stream: u8,
    /// How many searches there had been when it came into its pool.
    since: u64,
}

/// One of the two pools, over all streams.
#[derive(Clone, Debug, Default)]
struct Pool {
    /// By stream, size and address (`BlockComparatorSize`).
    free: BTreeSet<(u8, u64, u64, usize)>,
    /// By stream and address (`BlockComparatorAddress`).
    unmapped: BTreeSet<(u8, u64, usize)>,
    /// `get_free_blocks_call_count`
    searches: u64,
}

/// The allocator of one card, with settings.
#[derive(Clone, Debug)]
pub struct ConfiguredAllocator {
    settings: Settings,
    limit: Option<u64>,
    blocks: Vec<Block>,
    vacant: Vec<usize>,
    pools: [Pool; 2],
    block_of: Vec<usize>,
    next_address: u64,
    allocated: u64,
    reserved: u64,
    peak_allocated: u64,
    peak_reserved: u64,
    retries: u32,
}

impl ConfiguredAllocator {
    /// An empty allocator on a card that gives at most `limit`.
    pub fn new(settings: Settings, limit: Option<Bytes>) -> Self {
        Self {
            settings,
            limit: limit.map(Bytes::get),
            blocks: Vec::new(),
            vacant: Vec::new(),
            pools: [Pool::default(), Pool::default()],
            block_of: Vec::new(),
            next_address: 0,
            allocated: 0,
            reserved: 0,
            peak_allocated: 0,
            peak_reserved: 0,
            retries: 0,
        }
    }

    /// As [`super::CachingAllocator::alloc`].
    ///
    /// # Errors
    /// There is no room, whatever was given back.
    pub fn alloc(&mut self, id: u32, size: Bytes, stream: Stream) -> Result<(), OutOfMemory> {
        let block = if size.is_zero() {
            NONE
        } else {
            self.malloc(size.get(), stream.number()).ok_or_else(|| self.refused(size))?
        };
        let id = id as usize;
        if id >= self.block_of.len() {
            self.block_of.resize(id + 1, NONE);
        }
        if let Some(place) = self.block_of.get_mut(id) {
            *place = block;
        }
        Ok(())
    }

    fn refused(&self, requested: Bytes) -> OutOfMemory {
        let limit = self.settings.allowed.or(self.limit.map(Bytes::new));
        OutOfMemory { requested, allocated: Bytes::new(self.allocated), reserved: Bytes::new(self.reserved), limit }
    }

    fn malloc(&mut self, size: u64, stream: u8) -> Option<usize> {
        let size = self.settings.round(size);
        let large = size > SMALL;
        let found = match self.free_block(size, large, stream) {
            Some(found) => found,
            None => {
                self.collect_garbage();
                match self.new_block(size, large, stream) {
                    Some(made) => made,
                    None => self.new_block_after_release(size, large, stream)?,
                }
            }
        };
        let block = self.at(found);
        let rest = block.size - size;
        let splits = if !large || self.settings.expandable_segments {
            rest >= LEAST
        } else {
            size < self.max_split() && rest > SMALL
        };
        let taken = if splits { self.split(found, size) } else { found };
        let block = self.blocks.get_mut(taken)?;
        block.allocated = true;
        self.allocated += block.size;
        self.peak_allocated = self.peak_allocated.max(self.allocated);
        Some(taken)
    }

    /// Cuts `size` off the front; the rest is free.
    fn split(&mut self, index: usize, size: u64) -> usize {
        let block = self.at(index);
        let front = self.add(Block { size, next: index, ..block });
        if let Some(before) = self.blocks.get_mut(block.prev) {
            before.next = front;
        }
        if let Some(rest) = self.blocks.get_mut(index) {
            rest.prev = front;
            rest.address += size;
            rest.size -= size;
        }
        self.put(index);
        front
    }

    fn max_split(&self) -> u64 {
        self.settings.max_split_size.map_or(u64::MAX, Bytes::get)
    }

    /// `get_free_block`
    fn free_block(&mut self, size: u64, large: bool, stream: u8) -> Option<usize> {
        let max_split = self.max_split();
        let pool = &mut self.pools[usize::from(large)];
        pool.searches += 1;
        let mut candidates =
            pool.free.range((stream, size, 0, 0)..).filter(|entry| entry.0 == stream).map(|entry| entry.3);
        let mut found = candidates.next()?;
        let reach = |index: usize| {
            let block = &self.blocks[index];
            let next = self.blocks.get(block.next).filter(|next| !next.mapped);
            block.size + next.map_or(0, |next| next.size)
        };
        if self.blocks[found].expandable {
            // A block in front of addresses without memory counts as large as it can grow.
            for next in candidates {
                if reach(next) >= reach(found) {
                    break;
                }
                found = next;
            }
        }
        let has = self.blocks[found].size;
        if (size < max_split && has >= max_split) || (size >= max_split && has >= size.saturating_add(LARGE_SEGMENT)) {
            return None;
        }
        self.take(found);
        Some(found)
    }

    /// `alloc_block`
    fn new_block(&mut self, size: u64, large: bool, stream: u8) -> Option<usize> {
        let segment = match size {
            _ if !large => SMALL_SEGMENT,
            size if size < OWN_SEGMENT => LARGE_SEGMENT,
            size => size.checked_next_multiple_of(SMALL_SEGMENT)?,
        };
        if self.settings.allowed.is_some_and(|allowed| self.reserved.saturating_add(segment) > allowed.get()) {
            return None;
        }
        if self.settings.expandable_segments {
            return self.grow(size, large, stream);
        }
        if !self.has_room(segment) {
            return None;
        }
        let behind = self.next_address.checked_add(segment)?;
        let address = if self.settings.falling { u64::MAX - behind } else { self.next_address };
        self.next_address = behind;
        self.reserve(segment);
        Some(self.add(Block {
            size: segment,
            address,
            prev: NONE,
            next: NONE,
            allocated: false,
            mapped: true,
            expandable: false,
            large,
            stream,
            since: 0,
        }))
    }

    /// What `malloc` tries when the driver gave nothing.
    fn new_block_after_release(&mut self, size: u64, large: bool, stream: u8) -> Option<usize> {
        if self.release_available(size, large, stream)
            && let Some(made) = self.new_block(size, large, stream)
        {
            return Some(made);
        }
        self.empty_cache();
        self.retries += 1;
        self.new_block(size, large, stream)
    }

    fn has_room(&self, more: u64) -> bool {
        self.limit.is_none_or(|limit| self.reserved.saturating_add(more) <= limit)
    }

    fn reserve(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }

    /// `try_merge_blocks` with both neighbours.
    fn merge(&mut self, index: usize) {
        let block = self.at(index);
        for side in [block.prev, block.next] {
            let Some(other) = self.blocks.get(side).copied() else { continue };
            if other.allocated || other.mapped != block.mapped {
                continue;
            }
            if other.mapped {
                self.take(side);
            } else {
                self.pools[usize::from(other.large)].unmapped.remove(&(other.stream, other.address, side));
            }
            let Some(this) = self.blocks.get_mut(index) else { return };
            this.size += other.size;
            if this.prev == side {
                this.address = other.address;
                this.prev = other.prev;
                if let Some(before) = self.blocks.get_mut(other.prev) {
                    before.next = index;
                }
            } else {
                this.next = other.next;
                if let Some(after) = self.blocks.get_mut(other.next) {
                    after.prev = index;
                }
            }
            self.vacant.push(side);
        }
    }

    /// As [`super::CachingAllocator::free`].
    pub fn free(&mut self, id: u32) {
        let Some(place) = self.block_of.get_mut(id as usize) else { return };
        let index = std::mem::replace(place, NONE);
        let Some(block) = self.blocks.get_mut(index) else { return };
        block.allocated = false;
        self.allocated -= block.size;
        self.merge(index);
        self.put(index);
    }

    fn at(&self, index: usize) -> Block {
        self.blocks[index]
    }

    fn add(&mut self, block: Block) -> usize {
        if let Some(index) = self.vacant.pop() {
            self.blocks[index] = block;
            return index;
        }
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    fn put(&mut self, index: usize) {
        let since = self.pools[usize::from(self.blocks[index].large)].searches;
        self.blocks[index].since = since;
        let block = self.blocks[index];
        self.pools[usize::from(block.large)].free.insert((block.stream, block.size, block.address, index));
    }

    fn take(&mut self, index: usize) {
        let block = self.blocks[index];
        self.pools[usize::from(block.large)].free.remove(&(block.stream, block.size, block.address, index));
    }

    /// In use now.
    pub const fn allocated(&self) -> Bytes {
        Bytes::new(self.allocated)
    }

    /// Taken from the driver now.
    pub const fn reserved(&self) -> Bytes {
        Bytes::new(self.reserved)
    }

    /// The most that was in use.
    pub const fn peak_allocated(&self) -> Bytes {
        Bytes::new(self.peak_allocated)
    }

    /// The most that was taken from the driver.
    pub const fn peak_reserved(&self) -> Bytes {
        Bytes::new(self.peak_reserved)
    }

    /// As [`super::CachingAllocator::reset_peaks`].
    pub const fn reset_peaks(&mut self) {
        self.peak_allocated = self.allocated;
        self.peak_reserved = self.reserved;
    }

    /// As [`super::CachingAllocator::retries`].
    pub const fn retries(&self) -> u32 {
        self.retries
    }
}

#[cfg(test)]
mod tests;
