//! What goes back to the driver, and when.

use plimsoll_ground::Bytes;

use super::{ConfiguredAllocator, NONE};
use crate::settings::Settings;

impl ConfiguredAllocator {
    /// `release_available_cached_blocks`: oversized blocks, as many as make room.
    pub(super) fn release_available(&mut self, size: u64, large: bool, stream: u8) -> bool {
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
    pub(super) fn release(&mut self, index: usize) -> bool {
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
    pub(super) fn collect_garbage(&mut self) {
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
}
