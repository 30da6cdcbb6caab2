//! Reading a ledger: live bytes, phases, and what the caching allocator makes of the stream.

use plimsoll_allocator::{CachingAllocator, ConfiguredAllocator, OutOfMemory, Replay, Settings};
use plimsoll_ground::Bytes;
use plimsoll_ledger::{Kind, Ledger};

use super::{Category, PeakBreakdown, Phase};

/// PyTorch rounds every request up to 512 bytes (`kMinBlockSize`).
pub const ROUNDING: Bytes = Bytes::new(512);

/// Why a storage is alive, in the words people read.
pub const fn category(kind: Kind) -> Category {
    match kind {
        Kind::Parameter | Kind::Buffer => Category::Weights,
        Kind::Input => Category::Inputs,
        Kind::Forward | Kind::Backward | Kind::Optimizer => Category::Temporaries,
        Kind::Saved => Category::SavedActivations,
        Kind::AutocastCopy => Category::AutocastCopies,
        Kind::Gradient => Category::Gradients,
        Kind::OptimizerState => Category::OptimizerStates,
        Kind::Workspace | Kind::Scratch => Category::Workspace,
        Kind::KeyValue => Category::KvCache,
    }
}

/// Where `requested` peaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedPeak {
    /// Live bytes.
    pub bytes: Bytes,
    /// Index of the allocation that reached it.
    pub event: usize,
}

/// What the allocator reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatorPeaks {
    /// `max_memory_allocated`.
    pub allocated: Bytes,
    /// `max_memory_reserved`.
    pub reserved: Bytes,
    /// How often cached segments were released to make room.
    pub retries: u32,
    /// What was reserved for other streams than the default one when each stretch between two emptyings of the cache ended; shorter
    /// where the allocator keeps no count of it.
    pub apart: Vec<Bytes>,
}

/// Replays the stream through the caching allocator with room for `limit`; fills the phases' peaks and ends.
///
/// # Errors
/// The request for which there was no room.
pub fn replay(
    ledger: &Ledger,
    sizes: impl Fn(u32) -> Bytes,
    (limit, settings): (Option<Bytes>, &Settings),
    phases: Option<&mut [Phase]>,
) -> Result<AllocatorPeaks, OutOfMemory> {
    if settings.is_default() {
        let allocator = CachingAllocator::with_capacity(limit, ledger.storages.len()).falling(settings.falling);
        through(allocator, ledger, sizes, phases)
    } else {
        through(ConfiguredAllocator::new(*settings, limit), ledger, sizes, phases)
    }
}

fn through(
    mut allocator: impl Replay,
    ledger: &Ledger,
    sizes: impl Fn(u32) -> Bytes,
    mut phases: Option<&mut [Phase]>,
) -> Result<AllocatorPeaks, OutOfMemory> {
    let (mut allocated, mut reserved) = (Bytes::ZERO, Bytes::ZERO);
    let mut apart = Vec::new();
    for (i, mark) in ledger.phases.iter().enumerate() {
        let end = ledger.phases.get(i + 1).map_or(ledger.events.len(), |next| next.at);
        for (emptied, range) in ledger.between_emptyings(mark.at..end) {
            if emptied {
                apart.extend(allocator.reserved_apart());
                allocator.empty_cache();
            }
            for event in &ledger.events[range] {
                allocator.apply(*event, &sizes)?;
            }
        }
        allocated = allocated.max(allocator.peak_allocated());
        reserved = reserved.max(allocator.peak_reserved());
        if let Some(phases) = phases.as_deref_mut() {
            phases[i].peak_allocated = allocator.peak_allocated();
            phases[i].peak_reserved = allocator.peak_reserved();
            phases[i].end_allocated = allocator.allocated();
            phases[i].end_reserved = allocator.reserved();
        }
        allocator.reset_peaks();
    }
    apart.extend(allocator.reserved_apart());
    Ok(AllocatorPeaks { allocated, reserved, retries: allocator.retries(), apart })
}

/// `max_memory_allocated` over the phases of one step, with unlimited memory.
pub fn largest_allocated(ledger: &Ledger, step: u64) -> Bytes {
    let (mut phases, _) = requested(ledger);
    let size = |id: u32| Bytes::new(ledger.storages[id as usize].bytes);
    // Without a limit no request is refused.
    let _ = replay(ledger, size, (None, &Settings::default()), Some(&mut phases));
    let of_it = phases.iter().filter(|p| p.step.map(u64::from) == Some(step));
    of_it.map(|p| p.peak_allocated).max().unwrap_or(Bytes::ZERO)
}

/// Allocated and reserved after the first `events` events.
///
/// # Errors
/// The request for which there was no room.
pub fn at(
    ledger: &Ledger,
    sizes: impl Fn(u32) -> Bytes,
    (limit, settings): (Option<Bytes>, &Settings),
    events: usize,
) -> Result<(Bytes, Bytes), OutOfMemory> {
    if settings.is_default() {
        up_to(CachingAllocator::with_capacity(limit, ledger.storages.len()), ledger, sizes, events)
    } else {
        up_to(ConfiguredAllocator::new(*settings, limit), ledger, sizes, events)
    }
}

fn up_to(
    mut allocator: impl Replay,
    ledger: &Ledger,
    sizes: impl Fn(u32) -> Bytes,
    events: usize,
) -> Result<(Bytes, Bytes), OutOfMemory> {
    for (emptied, range) in ledger.between_emptyings(0..events.min(ledger.events.len())) {
        if emptied {
            allocator.empty_cache();
        }
        for event in &ledger.events[range] {
            allocator.apply(*event, &sizes)?;
        }
    }
    Ok((allocator.allocated(), allocator.reserved()))
}

/// Live bytes over the stream: the phases with their peaks, and the peak of all.
pub fn requested(ledger: &Ledger) -> (Vec<Phase>, RequestedPeak) {
    let mut live = Bytes::ZERO;
    let mut peak = RequestedPeak::default();
    let mut phases = Vec::with_capacity(ledger.phases.len());
    for (i, mark) in ledger.phases.iter().enumerate() {
        let end = ledger.phases.get(i + 1).map_or(ledger.events.len(), |next| next.at);
        let (mut highest, mut reached) = (live, 0);
        for (offset, event) in ledger.events[mark.at..end].iter().enumerate() {
            let size = Bytes::new(ledger.storages[event.id() as usize].bytes).round_up_to(ROUNDING);
            if event.is_free() {
                live -= size;
                continue;
            }
            live += size;
            if live > highest {
                (highest, reached) = (live, mark.at + offset);
            }
        }
        // Where it began is no higher than the peak so far.
        if highest > peak.bytes {
            peak = RequestedPeak { bytes: highest, event: reached };
        }
        phases.push(Phase {
            name: mark.name,
            step: mark.step,
            micro_batch: mark.micro_batch,
            peak_requested: highest,
            end_requested: live,
            end_allocated: Bytes::ZERO,
            end_reserved: Bytes::ZERO,
            peak_allocated: Bytes::ZERO,
            peak_reserved: Bytes::ZERO,
        });
    }
    (phases, peak)
}

/// What is alive after the first `events` events, by category.
pub fn breakdown(ledger: &Ledger, events: usize) -> PeakBreakdown {
    let mut live = PeakBreakdown::default();
    for id in alive(ledger, events) {
        let storage = &ledger.storages[id as usize];
        live.add(category(storage.kind), Bytes::new(storage.bytes).round_up_to(ROUNDING));
    }
    live
}

/// The storages alive after the first `events` events, in order of birth.
pub fn alive(ledger: &Ledger, events: usize) -> impl Iterator<Item = u32> {
    let mut is_alive = vec![false; ledger.storages.len()];
    for event in ledger.events.iter().take(events) {
        is_alive[event.id() as usize] = !event.is_free();
    }
    is_alive.into_iter().enumerate().filter(|(_, a)| *a).map(|(i, _)| i as u32)
}
