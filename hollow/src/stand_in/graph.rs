//! Graphs: a capture is a state of a stream, a graph a handle. Replaying one does nothing, as a launch does.

use std::sync::atomic::Ordering;

use super::call::{Status, put, status};
use super::streams::Stream;

/// Every graph's handle; nothing is read behind it.
pub(super) const HANDLE: u64 = 0x6772_6170_6800;

/// `cudaStreamCaptureStatus`: 0 none, 1 active.
pub(super) fn capturing(stream: Option<&Stream>) -> i32 {
    i32::from(stream.is_some_and(|s| s.capturing.load(Ordering::Relaxed)))
}

/// Begins a capture; the default stream cannot be captured.
pub(super) fn begin(stream: Option<&Stream>) -> Status {
    match stream {
        Some(stream) => {
            stream.capturing.store(true, Ordering::Relaxed);
            status::SUCCESS
        }
        None => status::INVALID_VALUE,
    }
}

/// Ends it.
///
/// # Safety
/// `to` is null or valid for a write.
pub(super) unsafe fn end(stream: Option<&Stream>, to: *mut u64) -> Status {
    match stream {
        Some(stream) => {
            stream.capturing.store(false, Ordering::Relaxed);
            // SAFETY: the caller's.
            unsafe { put(to, HANDLE) };
            status::SUCCESS
        }
        None => status::INVALID_VALUE,
    }
}

/// State and identity of a capture: the stream's own, since one stream is captured at a time.
///
/// # Safety
/// Both are null or valid for a write.
pub(super) unsafe fn info(stream: Option<&Stream>, state: *mut i32, id: *mut u64) -> Status {
    // SAFETY: the caller's.
    unsafe {
        put(state, capturing(stream));
        put(id, stream.map_or(0, |s| s.id));
    }
    status::SUCCESS
}
