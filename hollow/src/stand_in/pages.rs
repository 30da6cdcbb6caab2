//! Addresses of this process: reserved for a card, readable as zeros where something is allocated, and never written by a
//! kernel, so that they cost no memory.

use std::ffi::c_void;
use std::sync::Arc;

use super::book::Book;
use super::space::Pages;

const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Pages of the real address space, for one card.
#[derive(Debug)]
pub(super) struct Mapped {
    /// What the processes hold of the cards.
    pub book: Arc<Book>,
    /// The card's place among all cards, seen or not.
    pub physical: usize,
}

impl Pages for Mapped {
    fn commit(&self, at: u64, len: u64) -> bool {
        let made = map(at, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED);
        if !made {
            // Otherwise it would pass for a full card.
            eprintln!(
                "plimsoll: the system refused {len} bytes of addresses (ulimit -v, or vm.overcommit_memory is 2)"
            );
        }
        made
    }

    fn release(&self, at: u64, len: u64) {
        // What was there is given back by being mapped over. If that fails the pages stay readable, which harms nobody.
        map(at, len, libc::PROT_NONE, libc::MAP_FIXED);
    }

    fn taken(&self, bytes: u64) {
        self.book.note(self.physical, bytes);
    }

    fn others(&self) -> u64 {
        self.book.taken_by_others(self.physical)
    }
}

/// Keeps addresses from being given to anybody else.
pub(super) fn set_aside(at: u64, len: u64) -> bool {
    map(at, len, libc::PROT_NONE, libc::MAP_FIXED_NOREPLACE)
}

fn map(at: u64, len: u64, access: i32, how: i32) -> bool {
    // SAFETY: fixed mappings are made only inside the range that `set_aside` got for a card, which nobody else uses; and
    // `set_aside` itself replaces nothing.
    let got = unsafe { libc::mmap(at as *mut c_void, len as usize, access, FLAGS | how, -1, 0) };
    got as u64 == at
}

/// Memory of the host that is pinned as far as anybody can tell: zeros at an address of the system's choice.
pub(super) fn host(len: u64) -> Option<u64> {
    // SAFETY: a new mapping at an address that the system chooses.
    let got =
        unsafe { libc::mmap(std::ptr::null_mut(), len as usize, libc::PROT_READ | libc::PROT_WRITE, FLAGS, -1, 0) };
    (got != libc::MAP_FAILED).then_some(got as u64)
}

/// Gives back what [`host`] gave.
pub(super) fn give_back(at: u64, len: u64) {
    // SAFETY: called only with what `host` answered, once.
    unsafe {
        libc::munmap(at as *mut c_void, len as usize);
    }
}

/// Makes whole pages read as zeros again without touching them.
pub(super) fn forget(at: u64, len: u64) {
    const SYSTEM_PAGE: u64 = 4096;
    let (from, to) = (at.next_multiple_of(SYSTEM_PAGE), (at + len) / SYSTEM_PAGE * SYSTEM_PAGE);
    if to > from {
        // SAFETY: the range lies inside an allocation of a card, private and anonymous.
        unsafe {
            libc::madvise(from as *mut c_void, (to - from) as usize, libc::MADV_DONTNEED);
        }
    }
}
