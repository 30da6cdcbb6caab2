//! Copies. Small ones to a card are made, so that masks and labels are there when they are read back; large ones are not,
//! so that a model's weights cost no memory.

use std::ffi::c_void;

use super::call::{Status, status};
use super::cards::cards;
use super::{overflow, pages, selected, truth};

/// Copies to a card above this many bytes are not made.
const MADE: usize = 1 << 20;

fn on_card(at: u64) -> bool {
    cards().of_address(at).is_some()
}

/// Copies `bytes` from anywhere to anywhere.
///
/// # Safety
/// Both are valid for `bytes`.
pub(super) unsafe fn copy(to: u64, from: u64, bytes: usize) -> Status {
    if bytes == 0 {
        return status::SUCCESS;
    }
    let (to_card, from_card) = (on_card(to), on_card(from));
    if to_card && bytes > MADE {
        return status::SUCCESS;
    }
    // SAFETY: the caller's; the two may overlap only on a card, where they may here too.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
    if from_card && !to_card && bytes == size_of::<u32>() {
        let answer = selected::count(cards().setup.rules).or_else(overflow::found);
        if let Some(answer) = answer {
            // SAFETY: valid for four bytes.
            unsafe { (to as *mut u32).write_unaligned(answer) };
        }
    }
    if from_card && !to_card && bytes == 1 {
        // SAFETY: valid for one byte.
        unsafe { (to as *mut u8).write(u8::from(truth::truth(cards().setup.rules))) };
    }
    status::SUCCESS
}

/// Copies `height` rows of `width` bytes.
///
/// # Safety
/// Both are valid for their rows.
pub(super) unsafe fn copy_rows(
    (to, to_pitch): (u64, usize),
    (from, from_pitch): (u64, usize),
    width: usize,
    height: usize,
) -> Status {
    if on_card(to) && width.saturating_mul(height) > MADE {
        return status::SUCCESS;
    }
    for row in 0..height {
        // SAFETY: a row of each.
        unsafe {
            std::ptr::copy(
                (from as usize + row * from_pitch) as *const u8,
                (to as usize + row * to_pitch) as *mut u8,
                width,
            );
        }
    }
    status::SUCCESS
}

/// Fills `count` elements of `N` bytes.
///
/// # Safety
/// `to` is valid for them.
pub(super) unsafe fn fill<const N: usize>(to: u64, value: [u8; N], count: usize) -> Status {
    let bytes = count.saturating_mul(N);
    if !on_card(to) || bytes <= MADE {
        for i in 0..count {
            // SAFETY: element `i` of `count`.
            unsafe { ((to as usize + i * N) as *mut [u8; N]).write_unaligned(value) };
        }
    } else if value == [0; N] {
        pages::forget(to, bytes as u64);
    }
    status::SUCCESS
}

/// As C has an address.
pub(super) fn address<T>(pointer: *const T) -> u64 {
    pointer.cast::<c_void>() as u64
}
