//! The history of a card as storages that come and go: what was alive at every event.

use std::collections::HashMap;
use std::ops::Range;

use plimsoll_ground::Bytes;

use crate::read::{Action, Device, StackId, State};

/// The allocator's smallest step (`kMinBlockSize` of c10/cuda/CUDACachingAllocator.cpp).
const ROUNDING: Bytes = Bytes::new(512);

/// One tensor's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// What was asked for.
    pub size: Bytes,
    /// Who asked for it.
    pub stack: StackId,
    /// The event that made it; none of what was there before the history begins.
    pub from: Option<usize>,
    /// The event that freed it; none of what was there when it ends.
    pub to: Option<usize>,
}

/// An event at which there was no memory left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oom {
    /// The event.
    pub at: usize,
    /// What was asked for.
    pub asked: Bytes,
    /// What the driver had left.
    pub free: Bytes,
    /// Who asked.
    pub stack: StackId,
}

/// One step of an optimizer, as the program marked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The first event of `Optimizer.step`.
    pub begin: usize,
    /// The first event after it.
    pub end: usize,
}

/// A card's history.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// Everything that was alive at some time.
    pub storages: Vec<Storage>,
    /// Alive before the first event, and after each: what was asked for, each rounded up to 512 bytes.
    pub live: Vec<Bytes>,
    /// Had from the driver before the first event, and after each.
    pub reserved: Vec<Bytes>,
    /// Where memory ended.
    pub ooms: Vec<Oom>,
    /// The optimizer's steps, where the program marked them.
    pub steps: Vec<Step>,
}

impl Course {
    /// Follows a card's history. What lies in its segments and was never seen to come was there before; so was what goes without
    /// having come.
    pub fn of(device: &Device) -> Self {
        let mut storages: Vec<Storage> = Vec::new();
        let mut alive: HashMap<u64, usize> = HashMap::new();
        let mut ooms = Vec::new();
        for (at, entry) in device.trace.iter().enumerate() {
            let storage = Storage { size: entry.size, stack: entry.stack, from: None, to: None };
            match entry.action {
                Action::Alloc => {
                    alive.insert(entry.address, storages.len());
                    storages.push(Storage { from: Some(at), ..storage });
                }
                Action::FreeRequested => match alive.remove(&entry.address) {
                    Some(index) => storages[index].to = Some(at),
                    // Who freed it is known; who asked for it is not.
                    None => storages.push(Storage { to: Some(at), stack: StackId::default(), ..storage }),
                },
                Action::Oom => {
                    ooms.push(Oom { at, asked: entry.size, free: Bytes::new(entry.address), stack: entry.stack })
                }
                _ => {}
            }
        }
        let blocks = device.segments.iter().flat_map(|segment| &segment.blocks);
        for block in blocks.filter(|block| block.state == State::Allocated && !alive.contains_key(&block.address)) {
            storages.push(Storage { size: block.requested, stack: block.stack, from: None, to: None });
        }
        let events = device.trace.len();
        Self { live: live(&storages, events), reserved: reserved(device), ooms, steps: steps(device), storages }
    }

    /// The event after which most is alive, counted from 1; 0 where that was before all.
    pub fn peak(&self) -> usize {
        let most = self.live.iter().copied().max().unwrap_or(Bytes::ZERO);
        self.live.iter().position(|live| *live == most).unwrap_or(0)
    }

    /// What was alive after so many events.
    pub fn alive(&self, after: usize) -> impl Iterator<Item = &Storage> {
        self.storages.iter().filter(move |storage| {
            storage.from.is_none_or(|from| from < after) && storage.to.is_none_or(|to| to >= after)
        })
    }

    /// The events of the last step that the history has whole: from the end of one step of the optimizer to the end of the next.
    pub fn steady(&self) -> Option<Range<usize>> {
        let [.., before, last] = &self.steps[..] else { return None };
        (before.end <= last.end).then_some(before.end..last.end)
    }

    /// What came in these events, in order.
    pub fn came(&self, window: Range<usize>) -> Vec<&Storage> {
        self.storages.iter().filter(|storage| storage.from.is_some_and(|from| window.contains(&from))).collect()
    }

    /// The highest of `live` in `columns` equal stretches.
    pub fn heights(&self, columns: usize) -> Vec<Bytes> {
        let count = self.live.len();
        let at = |column: usize| (column as u128 * count as u128 / columns.max(1) as u128) as usize;
        let highest =
            |column: usize| self.live[at(column)..at(column + 1).max(at(column) + 1).min(count)].iter().copied().max();
        (0..columns).map(|column| highest(column).unwrap_or(Bytes::ZERO)).collect()
    }

    /// The stretch of `columns` that the time after so many events falls into.
    pub fn column(&self, after: usize, columns: usize) -> usize {
        let count = self.live.len().max(1) as u128;
        // The last stretch that begins at or before it, as in `heights`.
        (((after as u128 + 1) * columns as u128).div_ceil(count) as usize).saturating_sub(1)
    }
}

/// Rounded as the allocator rounds it.
pub fn rounded(size: Bytes) -> Bytes {
    size.round_up_to(ROUNDING).max(ROUNDING)
}

fn live(storages: &[Storage], events: usize) -> Vec<Bytes> {
    let mut changes: Vec<(Bytes, Bytes)> = vec![(Bytes::ZERO, Bytes::ZERO); events + 1];
    for storage in storages {
        let size = rounded(storage.size);
        changes[storage.from.map_or(0, |from| from + 1)].0 += size;
        if let Some(to) = storage.to {
            changes[to + 1].1 += size;
        }
    }
    let mut live = Bytes::ZERO;
    changes
        .into_iter()
        .map(|(come, gone)| {
            live = (live + come).saturating_sub(gone);
            live
        })
        .collect()
}

/// From what there is at the end, back to the beginning.
fn reserved(device: &Device) -> Vec<Bytes> {
    let mut now: Bytes = device.segments.iter().map(|segment| segment.total).sum();
    let mut reserved = vec![now];
    for entry in device.trace.iter().rev() {
        match entry.action {
            Action::SegmentAlloc => now = now.saturating_sub(entry.size),
            Action::SegmentFree => now += entry.size,
            _ => {}
        }
        reserved.push(now);
    }
    reserved.reverse();
    reserved
}

/// `Optimizer.step`, by the clock of events and marks.
fn steps(device: &Device) -> Vec<Step> {
    let event = |time: i64| device.trace.partition_point(|entry| entry.time < time);
    let mut steps: Vec<Step> = Vec::new();
    let mut begun = None;
    // Of what was before the history begins there is nothing to see.
    let first = device.trace.first().map_or(i64::MAX, |entry| entry.time);
    for mark in device.marks.iter().filter(|mark| mark.time >= first) {
        if !mark.name.starts_with("Optimizer.step") {
            continue;
        }
        match (mark.begins, begun) {
            (true, _) => begun = Some(event(mark.time)),
            (false, Some(begin)) => {
                steps.push(Step { begin, end: event(mark.time).max(begin) });
                begun = None;
            }
            (false, None) => {}
        }
    }
    steps
}
