//! What PyTorch's CUDA caching allocator makes of a stream of allocations: allocated and reserved bytes.
//!
//! The rules are those of `c10/cuda/CUDACachingAllocator.cpp`. With default settings (no expandable segments, no
//! `max_split_size_mb`, no fraction of the card), which [`CachingAllocator`] has and [`ConfiguredAllocator`] leaves where it is told to:
//!
//! * a block belongs to the stream it was allocated on, and serves only that stream again;
//! * a request is rounded up to 512 bytes; up to 1 MiB it comes from the small pool, above from the large pool;
//! * the best fitting free block of the pool is taken: the smallest that is large enough, the lowest address among equals;
//! * the rest of a block becomes a free block of its own when it has at least 512 bytes (small pool) or more than 1 MiB
//!   (large pool); otherwise the request keeps it, and it counts as allocated;
//! * where no block fits, a segment is taken from the driver: 2 MiB for a small request, 20 MiB for one below 10 MiB,
//!   otherwise the request rounded up to 2 MiB;
//! * a freed block merges with its free neighbours in the segment; the segment stays reserved;
//! * where a segment would exceed the limit, every cached segment that is one whole free block goes back to the driver, and
//!   the request is tried once more.
//!
//! The driver's addresses are taken as ascending, what was given back first, which is what decides between equal blocks;
//! [`CachingAllocator::falling`] takes them as descending, which on an H100 and an H200 they mostly did (`tests/corpus/README.md`, `card.jsonl`).

#![forbid(unsafe_code)]

mod addresses;
mod block;
mod configured;
mod free_list;
mod host;
mod out_of_memory;
mod replay;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod rule_tests;
mod settings;

use addresses::Addresses;
use block::{Block, Blocks, NONE};
pub use configured::ConfiguredAllocator;
use free_list::{FreeList, MAX_SIZE, Pool};
pub use host::HostAllocator;
pub use out_of_memory::OutOfMemory;
pub use replay::Replay;
pub use settings::Settings;

use plimsoll_ground::Bytes;
use plimsoll_ledger::{Event, Stream};

/// Everything below counts in units of 512 bytes, `kMinBlockSize` of `c10/core/AllocatorConfig.h`.
const UNIT: u64 = 512;
/// `kSmallSize`, 1 MiB: the largest request of the small pool, and what an unsplit large block may waste.
const SMALL_REQUEST: u64 = (1 << 20) / UNIT;
/// `kSmallBuffer`, 2 MiB: a segment of the small pool.
const SMALL_SEGMENT: u64 = (2 << 20) / UNIT;
/// `kMinLargeAlloc`, 10 MiB: from here on a request gets a segment of its own.
const OWN_SEGMENT_REQUEST: u64 = (10 << 20) / UNIT;
/// `large_segment_size_mb`, 20 MiB by default: the segment for large requests below that.
const LARGE_SEGMENT: u64 = (20 << 20) / UNIT;
/// `kRoundLarge`, 2 MiB: own segments are a multiple of it.
const SEGMENT_ROUNDING: u64 = (2 << 20) / UNIT;

/// The allocator of one card. Storages are named by the dense ids the ledger hands out.
///
/// ```
/// use plimsoll_allocator::CachingAllocator;
/// use plimsoll_ground::Bytes;
/// use plimsoll_ledger::Stream;
/// let mut allocator = CachingAllocator::new(None);
/// allocator.alloc(0, Bytes::from_mib(3), Stream::DEFAULT)?;
/// assert_eq!((allocator.allocated(), allocator.reserved()), (Bytes::from_mib(3), Bytes::from_mib(20)));
/// allocator.free(0);
/// assert_eq!((allocator.allocated(), allocator.reserved()), (Bytes::ZERO, Bytes::from_mib(20)));
/// # Ok::<(), plimsoll_allocator::OutOfMemory>(())
/// ```
#[derive(Clone, Debug)]
pub struct CachingAllocator {
    limit: Option<Bytes>,
    blocks: Blocks,
    /// The block of every storage; `NONE` for a storage that is empty, freed or was refused.
    block_of: Vec<u32>,
    /// By stream.
    free: Vec<FreeList>,
    driver: Addresses,
    allocated: u64,
    reserved: u64,
    /// What of it serves other streams than the default one.
    reserved_apart: u64,
    peak_allocated: u64,
    peak_reserved: u64,
    retries: u32,
    /// Blocks that were freed while another stream works on them: which stream, and when.
    waiting: Vec<(Stream, usize, u32)>,
}

impl CachingAllocator {
    /// An empty allocator that may reserve at most `limit`; `None` is a card without end.
    pub fn new(limit: Option<Bytes>) -> Self {
        Self::with_capacity(limit, 0)
    }

    /// The same with room for `storages` ids.
    pub fn with_capacity(limit: Option<Bytes>, storages: usize) -> Self {
        Self {
            limit,
            // As many are in use or free at once, about.
            blocks: Blocks::with_capacity(storages / 4),
            block_of: vec![NONE; storages],
            free: vec![FreeList::default()],
            driver: Addresses::default(),
            allocated: 0,
            reserved: 0,
            reserved_apart: 0,
            peak_allocated: 0,
            peak_reserved: 0,
            retries: 0,
            waiting: Vec::new(),
        }
    }

    /// The same where the driver lays every segment below the last ([`Settings::falling`]). To be said before the first.
    #[must_use]
    pub fn falling(mut self, falling: bool) -> Self {
        self.driver.falling = falling;
        self
    }

    /// Does what an event of a ledger says of a storage of `size`.
    ///
    /// # Errors
    /// As [`CachingAllocator::alloc`].
    pub fn apply(&mut self, event: Event, size: Bytes) -> Result<(), OutOfMemory> {
        if event.is_free() {
            self.free(event.id());
            return Ok(());
        }
        self.alloc(event.id(), size, event.stream())
    }

    /// Gives storage `id` a block of at least `size` on `stream`. A storage of zero bytes takes nothing.
    ///
    /// # Errors
    /// The limit leaves no room for the segment it needs, even after every cached segment was released. The storage
    /// then holds nothing, and freeing it does nothing.
    pub fn alloc(&mut self, id: u32, size: Bytes, stream: Stream) -> Result<(), OutOfMemory> {
        let units = size.get().div_ceil(UNIT);
        if units == 0 {
            self.name(id, NONE);
            return Ok(());
        }
        let pool = pool_for(units);
        let lane = usize::from(stream.number());
        if lane >= self.free.len() {
            self.free.resize_with(lane + 1, FreeList::default);
        }
        let block = match self.free[lane].take_best_fit(pool, units) {
            Some(index) => self.take_cached(lane, index, units),
            None => self.take_new(stream, pool, units).ok_or_else(|| self.out_of_memory(size))?,
        };
        self.name(id, block);
        Ok(())
    }

    /// Takes storage `id`'s block back. Freeing what holds nothing does nothing.
    pub fn free(&mut self, id: u32) {
        if let Some(index) = self.leave(id) {
            self.give_back(index);
        }
    }

    /// Frees storage `id`, whose block another stream still works on (`record_stream`): it is no longer allocated, and serves nobody
    /// until [`CachingAllocator::passed`] says that `stream` has come so far. `at` is when, and never before that of a block freed
    /// earlier.
    pub fn free_behind(&mut self, id: u32, stream: Stream, at: usize) {
        if let Some(index) = self.leave(id) {
            self.waiting.push((stream, at, index));
        }
    }

    /// `stream` has passed what it was given until `at`: blocks that were freed behind it by then return to their pools
    /// (`process_events`).
    pub fn passed(&mut self, stream: Stream, at: usize) {
        self.return_those(|behind, freed| behind == stream && freed <= at);
    }

    /// All streams have passed all they were given (`synchronize_and_free_events`).
    pub fn synchronized(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        for (.., index) in waiting.drain(..) {
            self.give_back(index);
        }
        // Its room is used again.
        self.waiting = waiting;
    }

    fn return_those(&mut self, passed: impl Fn(Stream, usize) -> bool) {
        let (done, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(stream, at, _)| passed(*stream, *at));
        self.waiting = left;
        for (.., index) in done {
            self.give_back(index);
        }
    }

    /// Storage `id` is no longer allocated; the block it had.
    fn leave(&mut self, id: u32) -> Option<u32> {
        let slot = self.block_of.get_mut(id as usize)?;
        let index = std::mem::replace(slot, NONE);
        if index == NONE {
            return None;
        }
        self.allocated -= self.blocks[index].size;
        Some(index)
    }

    /// A block returns to its pool.
    fn give_back(&mut self, mut index: u32) {
        let block = &mut self.blocks[index];
        block.free = true;
        let Block { mut size, mut address, prev, next, pool, stream, .. } = *block;
        let list = &mut self.free[usize::from(stream.number())];
        if next != NONE
            && let behind = self.blocks[next]
            && behind.free
        {
            list.remove(pool, behind.size, behind.address, next);
            size += behind.size;
            self.blocks.absorb_next(index);
        }
        if prev != NONE
            && let before = self.blocks[prev]
            && before.free
        {
            list.remove(pool, before.size, before.address, prev);
            size += before.size;
            address = before.address;
            self.blocks.absorb_next(prev);
            index = prev;
        }
        list.insert(pool, size, address, index);
    }

    /// Where storage `id` lies, in bytes from where the driver began; `None` of one that holds nothing.
    pub fn address(&self, id: u32) -> Option<u64> {
        let index = self.block_of.get(id as usize).copied().filter(|index| *index != NONE)?;
        Some(self.blocks[index].address * UNIT)
    }

    /// What blocks in use take now, as `torch.cuda.memory_allocated` counts: rounding and unsplit rests included.
    pub fn allocated(&self) -> Bytes {
        bytes(self.allocated)
    }

    /// What is taken from the driver now: `torch.cuda.memory_reserved`.
    pub fn reserved(&self) -> Bytes {
        bytes(self.reserved)
    }

    /// What of [`CachingAllocator::reserved`] serves other streams than the default one.
    pub fn reserved_apart(&self) -> Bytes {
        bytes(self.reserved_apart)
    }

    /// `torch.cuda.max_memory_allocated`.
    pub fn peak_allocated(&self) -> Bytes {
        bytes(self.peak_allocated)
    }

    /// `torch.cuda.max_memory_reserved`.
    pub fn peak_reserved(&self) -> Bytes {
        bytes(self.peak_reserved)
    }

    /// Forgets both peaks: they grow again from what is held now, as after `torch.cuda.reset_peak_memory_stats`.
    pub const fn reset_peaks(&mut self) {
        self.peak_allocated = self.allocated;
        self.peak_reserved = self.reserved;
    }

    /// How often cached segments were released to make room, `num_alloc_retries` in `torch.cuda.memory_stats`.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// Uses a cached block, taken out of its free list, which has at least `units`.
    #[inline]
    fn take_cached(&mut self, lane: usize, index: u32, units: u64) -> u32 {
        let block = &mut self.blocks[index];
        if !splits(*block, units) {
            block.free = false;
            let size = block.size;
            self.count_allocated(size);
            return index;
        }
        let Block { size, address, pool, .. } = *block;
        self.free[lane].insert(pool, size - units, address + units, index);
        self.count_allocated(units);
        self.blocks.split_front(index, units)
    }

    /// Takes a segment from the driver and the front of it; `None` when the limit leaves no room.
    #[inline(never)]
    fn take_new(&mut self, stream: Stream, pool: Pool, units: u64) -> Option<u32> {
        let segment = segment_for(units)?;
        if !self.has_room(segment) {
            self.synchronized();
            self.release_cached_segments();
            self.retries += 1;
            if !self.has_room(segment) {
                return None;
            }
        }
        let address = self.driver.take(segment);
        self.reserved += segment;
        if stream != Stream::DEFAULT {
            self.reserved_apart += segment;
        }
        self.peak_reserved = self.peak_reserved.max(self.reserved);

        let block = Block { size: segment, address, prev: NONE, next: NONE, free: false, pool, stream };
        let index = self.blocks.add(block);
        let taken = if splits(block, units) {
            self.blocks[index].free = true;
            let lane = usize::from(stream.number());
            self.free[lane].insert(pool, segment - units, address + units, index);
            self.blocks.split_front(index, units)
        } else {
            index
        };
        self.count_allocated(self.blocks[taken].size);
        Some(taken)
    }

    /// Whether `segment` more units fit the limit and the address space.
    fn has_room(&self, segment: u64) -> bool {
        let fits_limit = self.limit.is_none_or(|limit| self.reserved + segment <= limit.get() / UNIT);
        fits_limit && self.driver.has_room(segment)
    }

    /// `torch.cuda.empty_cache()`: every cached segment that is one whole free block goes back to the driver.
    pub fn empty_cache(&mut self) {
        self.synchronized();
        self.release_cached_segments();
    }

    /// Returns every segment that is one free block to the driver.
    fn release_cached_segments(&mut self) {
        for list in &mut self.free {
            for index in list.blocks(smallest_segment) {
                let block = self.blocks[index];
                if block.prev == NONE && block.next == NONE {
                    list.remove(block.pool, block.size, block.address, index);
                    self.reserved -= block.size;
                    self.driver.give_back(block.address, block.size);
                    if block.stream != Stream::DEFAULT {
                        self.reserved_apart -= block.size;
                    }
                    self.blocks.recycle(index);
                }
            }
        }
    }

    #[inline]
    fn count_allocated(&mut self, units: u64) {
        self.allocated += units;
        self.peak_allocated = self.peak_allocated.max(self.allocated);
    }

    #[inline]
    fn name(&mut self, id: u32, block: u32) {
        let id = id as usize;
        let Some(known) = self.block_of.get_mut(id) else { return self.name_new(id, block) };
        debug_assert_eq!(*known, NONE, "storage {id} is allocated twice");
        *known = block;
    }

    #[cold]
    fn name_new(&mut self, id: usize, block: u32) {
        self.block_of.resize(id, NONE);
        self.block_of.push(block);
    }

    #[cold]
    fn out_of_memory(&self, requested: Bytes) -> OutOfMemory {
        OutOfMemory { requested, allocated: self.allocated(), reserved: self.reserved(), limit: self.limit }
    }
}

/// The pool that serves a request (`get_pool`).
const fn pool_for(units: u64) -> Pool {
    if units <= SMALL_REQUEST { Pool::Small } else { Pool::Large }
}

/// Whether the rest of `block` behind `units` becomes a block of its own (`should_split`).
fn splits(block: Block, units: u64) -> bool {
    let kept = match block.pool {
        Pool::Small => 0,
        Pool::Large => SMALL_REQUEST,
    };
    block.size - units > kept
}

/// The segment a request asks the driver for (`get_allocation_size`); `None` past what can be addressed.
fn segment_for(units: u64) -> Option<u64> {
    let segment = if units <= SMALL_REQUEST {
        SMALL_SEGMENT
    } else if units < OWN_SEGMENT_REQUEST {
        LARGE_SEGMENT
    } else {
        units.next_multiple_of(SEGMENT_ROUNDING)
    };
    (segment <= MAX_SIZE).then_some(segment)
}

/// The smallest segment of a pool.
const fn smallest_segment(pool: Pool) -> u64 {
    match pool {
        Pool::Small => SMALL_SEGMENT,
        Pool::Large => OWN_SEGMENT_REQUEST,
    }
}

const fn bytes(units: u64) -> Bytes {
    Bytes::new(units * UNIT)
}
