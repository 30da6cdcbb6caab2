//! Allocations, whoever asks for them.

use super::call::{Status, status};
use super::cards::{Device, cards};
use super::pages;

/// `bytes` of a card.
pub(super) fn allocate(device: &Device, bytes: usize) -> Result<u64, Status> {
    device.space().allocate(bytes as u64).map_err(|_| status::OUT_OF_MEMORY)
}

/// Gives back what [`allocate`] gave; nothing at 0.
pub(super) fn free(at: u64) -> Status {
    if at == 0 {
        return status::SUCCESS;
    }
    match cards().of_address(at).map(|(_, device)| device.space().free_at(at)) {
        Some(Ok(())) => status::SUCCESS,
        _ => status::INVALID_VALUE,
    }
}

/// Pinned memory of the host.
pub(super) fn pin(bytes: usize) -> Result<u64, Status> {
    let len = (bytes as u64).max(1).next_multiple_of(4096);
    let at = pages::host(len).ok_or(status::OUT_OF_MEMORY)?;
    cards().pin(at, len, true);
    Ok(at)
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On a card: which, and where its allocation starts and how long it is.
    Card(i32, u64, u64),
    /// Pinned memory of the host: start and length.
    Pinned(u64, u64),
}

/// Where an address lies; `None` in memory that nobody pinned.
pub(super) fn place(at: u64) -> Option<Place> {
    if let Some((index, device)) = cards().of_address(at) {
        let (start, len) = device.space().around(at)?;
        return Some(Place::Card(index, start, len));
    }
    cards().pinned(at).map(|(start, len, _)| Place::Pinned(start, len))
}
