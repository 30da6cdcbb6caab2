//! Streams and events: everything on them is over as soon as it is asked for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use super::call::lock;

/// Identities of streams, contexts and captures.
static NEXT: AtomicU64 = AtomicU64::new(100);

/// A number that nobody else has.
pub(super) fn unique() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// The card it was made for.
    pub device: i32,
    /// As it was made.
    pub flags: u32,
    /// As it was made.
    pub priority: i32,
    /// Its identity.
    pub id: u64,
    /// Whether what is launched is being captured into a graph.
    pub capturing: AtomicBool,
}

/// Handles below this are the default streams, not pointers (CUDA Runtime API: `cudaStreamLegacy` 1, per-thread 2).
const DEFAULT: u64 = 16;

/// A new one; it lives as long as the process, since PyTorch keeps its streams for ever.
pub(super) fn stream(device: i32, flags: u32, priority: i32) -> u64 {
    let stream = Stream { device, flags, priority, id: unique(), capturing: AtomicBool::new(false) };
    std::ptr::from_ref(Box::leak(Box::new(stream))) as u64
}

/// What a handle stands for; the default stream is `None`.
///
/// # Safety
/// The handle is one of [`stream`]'s or a default stream's.
pub(super) unsafe fn of(handle: u64) -> Option<&'static Stream> {
    // SAFETY: the caller's; streams are never dropped.
    (handle > DEFAULT).then(|| unsafe { &*(handle as *const Stream) })
}

/// Events: when each was last recorded; handles are places in the list, counted from 1.
static EVENTS: LazyLock<Mutex<Events>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Events {
    recorded: Vec<Option<Instant>>,
    free: Vec<usize>,
}

/// A new event.
pub(super) fn event() -> u64 {
    let mut events = lock(&EVENTS);
    let place = match events.free.pop() {
        Some(place) => {
            events.recorded[place] = None;
            place
        }
        None => {
            events.recorded.push(None);
            events.recorded.len() - 1
        }
    };
    place as u64 + 1
}

/// It is no longer used.
pub(super) fn forget_event(handle: u64) {
    let mut events = lock(&EVENTS);
    let place = (handle as usize).wrapping_sub(1);
    if place < events.recorded.len() && !events.free.contains(&place) {
        events.free.push(place);
    }
}

/// It happens now.
pub(super) fn record(handle: u64) {
    let now = Instant::now();
    if let Some(event) = lock(&EVENTS).recorded.get_mut((handle as usize).wrapping_sub(1)) {
        *event = Some(now);
    }
}

/// Milliseconds between two events that were recorded.
pub(super) fn elapsed(from: u64, to: u64) -> Option<f32> {
    let events = lock(&EVENTS);
    let at = |handle: u64| events.recorded.get((handle as usize).wrapping_sub(1)).copied().flatten();
    let (from, to) = (at(from)?, at(to)?);
    Some(to.saturating_duration_since(from).as_secs_f32() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_between_recorded_events_only() {
        let (a, b) = (event(), event());
        assert_ne!(a, b);
        assert_eq!(elapsed(a, b), None);
        record(a);
        record(b);
        assert!(elapsed(a, b).is_some_and(|ms| ms >= 0.0));
        forget_event(a);
        assert!(elapsed(a, b).is_some(), "until it is used again");
        assert_eq!(event(), a);
        assert_eq!(elapsed(a, b), None);
    }
}
