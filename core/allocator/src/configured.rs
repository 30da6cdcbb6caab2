//! The caching allocator with its settings: the algorithm of `c10/cuda/CUDACachingAllocator.cpp` as it stands there, where
//! [`super::CachingAllocator`] has that of the defaults alone and is made to be fast.

use std::collections::BTreeSet;

use plimsoll_ground::Bytes;
use plimsoll_ledger::Stream;

use super::OutOfMemory;
use super::settings::Settings;

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
        let Some(block) = self.blocks.get_mut(taken) else { return None };
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
        let address = self.next_address;
        self.next_address = address.checked_add(segment)?;
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

    /// `try_allocate_expandable_block`
    fn grow(&mut self, size: u64, large: bool, stream: u8) -> Option<usize> {
        let mut candidate = self.expandable_block(size, large, stream)?;
        if !self.at(candidate).mapped && !self.map(&mut candidate, size) {
            return None;
        }
        while self.at(candidate).size < size {
            let block = self.at(candidate);
            let mut next = block.next;
            if next == NONE || !self.map(&mut next, size - block.size) {
                return None;
            }
            candidate = next;
        }
        self.take(candidate);
        Some(candidate)
    }

    /// `find_expandable_block`: the lowest address behind which there is room, of free and of unmapped blocks.
    fn expandable_block(&mut self, size: u64, large: bool, stream: u8) -> Option<usize> {
        let usable = |index: usize| self.blocks.get(index).is_some_and(|block| !block.allocated);
        let has_addresses = |mut index: usize| {
            let mut bytes = 0u64;
            while bytes < size && usable(index) {
                bytes += self.blocks[index].size;
                index = self.blocks[index].next;
            }
            bytes >= size
        };
        let pool = &self.pools[usize::from(large)];
        for (of, _, index) in pool.unmapped.range((stream, 0, 0)..) {
            if *of != stream {
                break;
            }
            let before = self.blocks[*index].prev;
            let first = if usable(before) { before } else { *index };
            if has_addresses(first) {
                return Some(first);
            }
        }
        let page = if large { LARGE_SEGMENT } else { SMALL_SEGMENT };
        let addresses =
            self.settings.card.map_or(WITHOUT_END, |card| (card.get() + card.get() / 8).next_multiple_of(page));
        let address = self.next_address.checked_next_multiple_of(LARGE_SEGMENT)?;
        self.next_address = address.checked_add(addresses)?;
        let index = self.add(Block {
            size: addresses,
            address,
            prev: NONE,
            next: NONE,
            allocated: false,
            mapped: false,
            expandable: true,
            large,
            stream,
            since: 0,
        });
        self.pools[usize::from(large)].unmapped.insert((stream, address, index));
        Some(index)
    }

    /// `map_block`: puts memory behind the first `size` bytes of an unmapped block, in whole pages. `index` becomes the block that it is
    /// part of then.
    fn map(&mut self, index: &mut usize, size: u64) -> bool {
        let block = self.at(*index);
        let page = if block.large { LARGE_SEGMENT } else { SMALL_SEGMENT };
        let mapped = size.min(block.size).next_multiple_of(page);
        if !self.has_room(mapped) {
            return false;
        }
        self.pools[usize::from(block.large)].unmapped.remove(&(block.stream, block.address, *index));
        if mapped < block.size {
            let rest =
                self.add(Block { size: block.size - mapped, address: block.address + mapped, prev: *index, ..block });
            if let Some(after) = self.blocks.get_mut(block.next) {
                after.prev = rest;
            }
            self.pools[usize::from(block.large)].unmapped.insert((block.stream, block.address + mapped, rest));
            if let Some(this) = self.blocks.get_mut(*index) {
                this.next = rest;
                this.size = mapped;
            }
        }
        if let Some(this) = self.blocks.get_mut(*index) {
            this.mapped = true;
        }
        self.merge(*index);
        self.put(*index);
        self.reserve(mapped);
        true
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

    /// `release_available_cached_blocks`: oversized blocks, as many as make room.
    fn release_available(&mut self, size: u64, large: bool, stream: u8) -> bool {
        let Some(max_split) = self.settings.max_split_size.map(Bytes::get) else { return false };
        let key = size.max(max_split);
        let pool = &self.pools[usize::from(large)];
        if let Some((of, .., index)) = pool.free.range((stream, key, 0, 0)..).next()
            && *of == stream
        {
            let index = *index;
            return self.release(index);
        }
        let oversized: Vec<(u64, usize)> = pool
            .free
            .range((stream, max_split, 0, 0)..)
            .take_while(|entry| entry.0 == stream)
            .map(|entry| (entry.1, entry.3))
            .collect();
        let mut released = 0;
        for (bytes, index) in oversized.into_iter().rev() {
            if released >= key {
                break;
            }
            released += bytes;
            self.release(index);
        }
        released >= key
    }

    /// `release_block`: a segment that is one free block goes back to the driver.
    fn release(&mut self, index: usize) -> bool {
        let block = self.at(index);
        if block.expandable || block.prev != NONE || block.next != NONE {
            return false;
        }
        self.take(index);
        self.reserved -= block.size;
        self.vacant.push(index);
        true
    }

    /// `garbage_collect_cached_blocks`: above the threshold, large segments go that were not used for longer than the mean.
    fn collect_garbage(&mut self) {
        let (Some(allowed), threshold) = (self.settings.allowed, self.settings.garbage_collection_threshold) else {
            return;
        };
        let threshold = u64::try_from(u128::from(allowed.get()) * u128::from(threshold) / u128::from(Settings::WHOLE))
            .unwrap_or(u64::MAX);
        if self.settings.garbage_collection_threshold == 0 || self.reserved <= threshold {
            return;
        }
        let target = self.reserved - threshold;
        let searches = self.pools[1].searches;
        let idle = |index: &usize| {
            let block = &self.blocks[*index];
            !block.expandable && block.prev == NONE && block.next == NONE
        };
        let mut left: Vec<usize> = self.pools[1].free.iter().map(|entry| entry.3).filter(idle).collect();
        let age = |of: &Self, index: usize| searches - of.blocks[index].since;
        let mut total: u64 = left.iter().map(|index| age(self, *index)).sum();
        let (mut reclaimed, mut freed) = (0u64, true);
        while reclaimed < target && freed && !left.is_empty() {
            // Ages are compared with their mean, without a division.
            let (sum, count) = (total, left.len() as u64);
            freed = false;
            for index in std::mem::take(&mut left) {
                let aged = age(self, index);
                if aged * count >= sum {
                    freed = true;
                    reclaimed += self.at(index).size;
                    total -= aged;
                    self.release(index);
                } else {
                    left.push(index);
                }
            }
        }
    }

    /// `release_cached_blocks`, and `torch.cuda.empty_cache()`: segments that are one free block go back, and of those that grow whole
    /// pages that are free.
    pub fn empty_cache(&mut self) {
        for large in [true, false] {
            let free: Vec<usize> = self.pools[usize::from(large)].free.iter().map(|entry| entry.3).collect();
            for index in free {
                if self.at(index).expandable {
                    self.unmap(index);
                } else {
                    self.release(index);
                }
            }
        }
    }

    /// `unmap_block`
    fn unmap(&mut self, index: usize) {
        let block = self.at(index);
        let page = if block.large { LARGE_SEGMENT } else { SMALL_SEGMENT };
        let begin = block.address.next_multiple_of(page);
        let end = (block.address + block.size) / page * page;
        if begin >= end {
            return;
        }
        self.take(index);
        if begin > block.address {
            let before = Block { size: begin - block.address, next: index, ..block };
            let before = self.add(before);
            if let Some(first) = self.blocks.get_mut(block.prev) {
                first.next = before;
            }
            self.blocks[index].prev = before;
            self.put(before);
        }
        let behind = block.address + block.size - end;
        if behind > 0 {
            let after = self.add(Block { size: behind, address: end, prev: index, ..block });
            if let Some(last) = self.blocks.get_mut(block.next) {
                last.prev = after;
            }
            self.blocks[index].next = after;
            self.put(after);
        }
        let this = &mut self.blocks[index];
        (this.address, this.size, this.mapped) = (begin, end - begin, false);
        self.merge(index);
        let block = self.at(index);
        self.pools[usize::from(block.large)].unmapped.insert((block.stream, block.address, index));
        self.reserved -= end - begin;
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
mod tests {
    use plimsoll_ledger::Stream;
    use proptest::prelude::*;

    use super::super::CachingAllocator;
    use super::*;

    /// What an allocator is asked: to give so many bytes on a stream, or to take back what it gave at this turn.
    #[derive(Clone, Debug)]
    enum Asked {
        Give(u64, u8),
        Take(usize),
    }

    fn asked() -> impl Strategy<Value = Vec<Asked>> {
        let bytes = prop_oneof![1..4096u64, 4096..2 * MIB, 2 * MIB..40 * MIB];
        let one = prop_oneof![
            3 => (bytes, 0..2u8).prop_map(|(bytes, stream)| Asked::Give(bytes, stream)),
            2 => (0..64usize).prop_map(Asked::Take),
        ];
        prop::collection::vec(one, 1..120)
    }

    proptest! {
        /// With nothing set it is the allocator that is made to be fast.
        #[test]
        fn without_settings_it_is_the_plain_one(asked in asked(), limit in prop_oneof![Just(None), (50..400u64).prop_map(Some)]) {
            let limit = limit.map(Bytes::from_mib);
            let mut plain = CachingAllocator::new(limit);
            let mut set = ConfiguredAllocator::new(Settings::default(), limit);
            for (id, asked) in (0u32..).zip(asked) {
                match asked {
                    Asked::Give(bytes, stream) => {
                        let (size, stream) = (Bytes::new(bytes), Stream::new(stream));
                        prop_assert_eq!(plain.alloc(id, size, stream), set.alloc(id, size, stream));
                    }
                    Asked::Take(turn) => {
                        plain.free(turn as u32);
                        set.free(turn as u32);
                    }
                }
                prop_assert_eq!((plain.allocated(), plain.reserved(), plain.retries()), (set.allocated(), set.reserved(), set.retries()));
            }
        }

        /// Segments that grow never take less than is in use, nor more than the next page of each pool and stream would.
        #[test]
        fn what_grows_covers_what_is_in_use(asked in asked()) {
            let mut set = ConfiguredAllocator::new(Settings { expandable_segments: true, ..Settings::default() }, None);
            for (id, asked) in (0u32..).zip(asked) {
                match asked {
                    Asked::Give(bytes, stream) => prop_assert!(set.alloc(id, Bytes::new(bytes), Stream::new(stream)).is_ok()),
                    Asked::Take(turn) => set.free(turn as u32),
                }
                prop_assert!(set.reserved() >= set.allocated());
            }
            set.empty_cache();
            prop_assert!(set.reserved() >= set.allocated());
        }
    }

    /// A block that grows serves what no block has room for: where two segments of their own would be taken, one of three pages is.
    #[test]
    fn a_segment_grows_where_it_lies() {
        let mut set = ConfiguredAllocator::new(Settings { expandable_segments: true, ..Settings::default() }, None);
        for (id, mib) in [(0, 15), (1, 15)] {
            assert_eq!(set.alloc(id, Bytes::from_mib(mib), Stream::DEFAULT), Ok(()));
        }
        assert_eq!(set.reserved(), Bytes::from_mib(40));
        set.free(0);
        set.free(1);
        assert_eq!(set.alloc(2, Bytes::from_mib(45), Stream::DEFAULT), Ok(()));
        assert_eq!(set.reserved(), Bytes::from_mib(60));
        set.free(2);
        set.empty_cache();
        assert_eq!(set.reserved(), Bytes::ZERO);
    }
}
