//! Which card a thread works on. Driver and runtime share it, as they do since CUDA 4.

use std::cell::{Cell, RefCell};

use super::call::{Status, status};
use super::cards::{Device, cards};

thread_local! {
    static CURRENT: Cell<i32> = const { Cell::new(0) };
    /// Whether the driver would say that this thread has a context.
    static BOUND: Cell<bool> = const { Cell::new(false) };
    /// What `cuCtxPushCurrent` covered.
    static COVERED: RefCell<Vec<Option<i32>>> = const { RefCell::new(Vec::new()) };
    static LAST_ERROR: Cell<Status> = const { Cell::new(status::SUCCESS) };
}

/// The card's index, whether it has a context or not.
pub(super) fn index() -> i32 {
    CURRENT.with(Cell::get)
}

/// The card whose context is current, if one is.
pub(super) fn bound() -> Option<i32> {
    BOUND.with(Cell::get).then(index)
}

/// Makes a card this thread's; `None`: no context.
pub(super) fn bind(device: Option<i32>) {
    BOUND.with(|b| b.set(device.is_some()));
    if let Some(device) = device {
        CURRENT.with(|c| c.set(device));
    }
}

/// Covers the current context with another.
pub(super) fn push(device: Option<i32>) {
    COVERED.with_borrow_mut(|covered| covered.push(bound()));
    bind(device);
}

/// Uncovers what the last [`push`] covered; answers what was current.
pub(super) fn pop() -> Option<i32> {
    let was = bound();
    bind(COVERED.with_borrow_mut(Vec::pop).flatten());
    was
}

/// The card, with a context on it: what every function of the runtime that needs one begins with.
pub(super) fn device() -> Result<&'static Device, Status> {
    let all = cards();
    if all.count() == 0 {
        return Err(status::NO_DEVICE);
    }
    let device = all.get(index())?;
    match device.activate() {
        status::SUCCESS => {
            BOUND.with(|b| b.set(true));
            Ok(device)
        }
        refused => Err(refused),
    }
}

/// Remembers an error for `cudaGetLastError` and hands it on; "not ready" is an answer, not an error.
pub(super) fn noted(status: Status) -> Status {
    if status != status::SUCCESS && status != status::NOT_READY {
        LAST_ERROR.with(|last| last.set(status));
    }
    status
}

/// The last error of this thread.
pub(super) fn last_error() -> Status {
    LAST_ERROR.with(Cell::get)
}

/// The same, and forgotten.
pub(super) fn take_error() -> Status {
    LAST_ERROR.with(|last| last.replace(status::SUCCESS))
}
