//! Segments that grow: addresses first, and memory behind them page by page.

use super::{Block, ConfiguredAllocator, LARGE_SEGMENT, NONE, SMALL_SEGMENT, WITHOUT_END};

impl ConfiguredAllocator {
    /// `try_allocate_expandable_block`
    pub(super) fn grow(&mut self, size: u64, large: bool, stream: u8) -> Option<usize> {
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

    /// `unmap_block`
    pub(super) fn unmap(&mut self, index: usize) {
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
}
