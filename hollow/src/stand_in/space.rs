//! The addresses of one card and what is taken of its memory. Knows no pointer: pages come and go through [`Pages`].

use std::collections::BTreeMap;

/// How large blocks are cut: the granularity of CUDA's virtual memory management, 2 MiB on every card so far.
pub(super) const PAGE: u64 = 2 << 20;
/// Allocations below this share a page.
const SMALL: u64 = 1 << 20;
/// `cudaMalloc` aligns to at least 256 bytes (CUDA C++ Programming Guide); drivers take 512.
const ALIGN: u64 = 512;

/// No room: neither in the card's memory nor among its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

/// An address that is not the start of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown;

/// What makes addresses readable and gives their contents back.
pub(super) trait Pages {
    /// Zeros from `at` on.
    fn commit(&self, at: u64, len: u64) -> bool;
    /// Nothing readable from `at` on.
    fn release(&self, at: u64, len: u64);
    /// So much of the card is taken now.
    fn taken(&self, _bytes: u64) {}
    /// What other processes have taken of the card.
    fn others(&self) -> u64 {
        0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One allocation.
    Block,
    /// A page of small ones.
    Shared,
    /// Addresses without memory.
    Reserved,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    len: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
struct Physical {
    len: u64,
    references: u32,
}

/// The book of one card.
#[derive(Debug)]
pub(super) struct Space<P> {
    pages: P,
    base: u64,
    end: u64,
    capacity: u64,
    /// Blocks are placed at the highest address that is free, else at the lowest.
    falling: bool,
    used: u64,
    peak: u64,
    ranges: BTreeMap<u64, Range>,
    small: BTreeMap<u64, u64>,
    physical: BTreeMap<u64, Physical>,
    mapped: BTreeMap<u64, (u64, u64)>,
    next: u64,
}

impl<P: Pages> Space<P> {
    /// Addresses `[base, base + len)` for a card with `capacity` bytes.
    pub(super) fn new(pages: P, base: u64, len: u64, capacity: u64, falling: bool) -> Self {
        Self {
            pages,
            base,
            end: base + len,
            capacity,
            falling,
            used: 0,
            peak: 0,
            ranges: BTreeMap::new(),
            small: BTreeMap::new(),
            physical: BTreeMap::new(),
            mapped: BTreeMap::new(),
            next: 1,
        }
    }

    /// Bytes taken now.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// The most bytes that were taken at once.
    pub(super) fn peak(&self) -> u64 {
        self.peak
    }

    /// Bytes that can still be taken.
    pub(super) fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used).saturating_sub(self.pages.others())
    }

    /// Takes memory that has no address, as a context does.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), NoRoom> {
        let room = self.capacity.saturating_sub(self.pages.others());
        let used = self.used.checked_add(bytes).filter(|&u| u <= room).ok_or(NoRoom)?;
        self.hold(used);
        self.peak = self.peak.max(used);
        Ok(())
    }

    /// So much is taken from now on.
    fn hold(&mut self, used: u64) {
        self.used = used;
        self.pages.taken(used);
    }

    /// `cudaMalloc`: the lowest address where `bytes` fit, or the highest.
    pub(super) fn allocate(&mut self, bytes: u64) -> Result<u64, NoRoom> {
        if bytes >= SMALL {
            return self.block(bytes, Kind::Block);
        }
        let len = bytes.max(1).next_multiple_of(ALIGN);
        let shared: Vec<u64> = self.ranges.iter().filter(|(_, r)| r.kind == Kind::Shared).map(|(&at, _)| at).collect();
        let at = match shared.into_iter().find_map(|page| self.gap(page, len)) {
            Some(at) => at,
            None => self.block(PAGE, Kind::Shared)?,
        };
        self.small.insert(at, len);
        Ok(at)
    }

    /// `cudaFree`.
    pub(super) fn free_at(&mut self, at: u64) -> Result<(), Unknown> {
        if self.small.remove(&at).is_some() {
            let (&page, _) = self.ranges.range(..=at).next_back().ok_or(Unknown)?;
            if self.small.range(page..page + PAGE).next().is_none() {
                self.drop_block(page);
            }
            return Ok(());
        }
        match self.ranges.get(&at) {
            Some(Range { kind: Kind::Block, .. }) => {
                self.drop_block(at);
                Ok(())
            }
            _ => Err(Unknown),
        }
    }

    /// Start and length of the allocation that holds an address.
    pub(super) fn around(&self, at: u64) -> Option<(u64, u64)> {
        if let Some((&start, &len)) = self.small.range(..=at).next_back()
            && at < start + len
        {
            return Some((start, len));
        }
        let (&start, range) = self.ranges.range(..=at).next_back()?;
        (at < start + range.len).then_some((start, range.len))
    }

    /// `cuMemAddressReserve`: addresses without memory.
    pub(super) fn reserve(&mut self, bytes: u64, align: u64) -> Result<u64, NoRoom> {
        let len = bytes.checked_next_multiple_of(PAGE).ok_or(NoRoom)?;
        let at = self.first_fit(len, align.max(PAGE)).ok_or(NoRoom)?;
        self.ranges.insert(at, Range { len, kind: Kind::Reserved });
        Ok(at)
    }

    /// `cuMemAddressFree`.
    pub(super) fn unreserve(&mut self, at: u64) -> Result<(), Unknown> {
        match self.ranges.get(&at).copied() {
            Some(Range { kind: Kind::Reserved, len }) => {
                self.pages.release(at, len);
                self.ranges.remove(&at);
                Ok(())
            }
            _ => Err(Unknown),
        }
    }

    /// `cuMemCreate`: memory without an address; the answer names it.
    pub(super) fn create(&mut self, bytes: u64) -> Result<u64, NoRoom> {
        self.take(bytes)?;
        let name = self.next;
        self.next += 1;
        self.physical.insert(name, Physical { len: bytes, references: 1 });
        Ok(name)
    }

    /// `cuMemMap`: memory gets addresses.
    pub(super) fn map(&mut self, at: u64, len: u64, name: u64) -> Result<(), Unknown> {
        let physical = self.physical.get_mut(&name).ok_or(Unknown)?;
        if !self.pages.commit(at, len) {
            return Err(Unknown);
        }
        physical.references += 1;
        self.mapped.insert(at, (len, name));
        Ok(())
    }

    /// `cuMemUnmap`: what lies in `[at, at + len)` loses its addresses.
    pub(super) fn unmap(&mut self, at: u64, len: u64) -> Result<(), Unknown> {
        let inside: Vec<(u64, u64, u64)> =
            self.mapped.range(at..at.saturating_add(len)).map(|(&at, &(len, name))| (at, len, name)).collect();
        for (at, len, name) in inside {
            self.pages.release(at, len);
            self.mapped.remove(&at);
            self.put_back(name)?;
        }
        Ok(())
    }

    /// `cuMemRelease`: the name is given up; memory goes when nothing maps it any more.
    pub(super) fn put_back(&mut self, name: u64) -> Result<(), Unknown> {
        let physical = self.physical.get_mut(&name).ok_or(Unknown)?;
        physical.references -= 1;
        if physical.references == 0 {
            let len = physical.len;
            self.physical.remove(&name);
            self.hold(self.used - len);
        }
        Ok(())
    }

    fn block(&mut self, bytes: u64, kind: Kind) -> Result<u64, NoRoom> {
        let len = bytes.checked_next_multiple_of(PAGE).ok_or(NoRoom)?;
        self.take(len)?;
        let fits = if self.falling { self.last_fit(len) } else { self.first_fit(len, PAGE) };
        let at = fits.filter(|&at| self.pages.commit(at, len));
        let Some(at) = at else {
            self.hold(self.used - len);
            return Err(NoRoom);
        };
        self.ranges.insert(at, Range { len, kind });
        Ok(at)
    }

    fn drop_block(&mut self, at: u64) {
        if let Some(range) = self.ranges.remove(&at) {
            self.pages.release(at, range.len);
            self.hold(self.used - range.len);
        }
    }

    fn first_fit(&self, len: u64, align: u64) -> Option<u64> {
        let mut at = self.base.next_multiple_of(align);
        for (&start, range) in &self.ranges {
            if at.checked_add(len)? <= start {
                return Some(at);
            }
            at = (start + range.len).checked_next_multiple_of(align)?;
        }
        (at.checked_add(len)? <= self.end).then_some(at)
    }

    /// The highest page from which on `len` bytes are free.
    fn last_fit(&self, len: u64) -> Option<u64> {
        let down = |end: u64| end.checked_sub(len).map(|at| at / PAGE * PAGE);
        let mut at = down(self.end)?;
        for (&start, range) in self.ranges.iter().rev() {
            if start + range.len <= at {
                return Some(at);
            }
            at = down(start)?;
        }
        (at >= self.base).then_some(at)
    }

    /// Where `len` bytes are free in a shared page.
    fn gap(&self, page: u64, len: u64) -> Option<u64> {
        let mut at = page;
        for (&start, &taken) in self.small.range(page..page + PAGE) {
            if at + len <= start {
                return Some(at);
            }
            at = start + taken;
        }
        (at + len <= page + PAGE).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Paper;

    impl Pages for Paper {
        fn commit(&self, _: u64, _: u64) -> bool {
            true
        }
        fn release(&self, _: u64, _: u64) {}
    }

    const BASE: u64 = 1 << 44;

    fn card(mib: u64) -> Space<Paper> {
        Space::new(Paper, BASE, 1 << 40, mib << 20, false)
    }

    #[test]
    fn large_blocks_are_whole_pages_at_the_lowest_address() {
        let mut space = card(16);
        let a = space.allocate(3 << 20).unwrap();
        let b = space.allocate(2 << 20).unwrap();
        assert_eq!((a, b, space.used()), (BASE, BASE + (4 << 20), 6 << 20));
        space.free_at(a).unwrap();
        assert_eq!(space.allocate(1 << 20).unwrap(), BASE, "the gap is taken first");
        assert_eq!(space.peak(), 6 << 20);
    }

    #[test]
    fn where_addresses_fall_the_highest_gap_is_taken() {
        let mut space = Space::new(Paper, BASE, 1 << 40, 16 << 20, true);
        let end = BASE + (1 << 40);
        let a = space.allocate(3 << 20).unwrap();
        let b = space.allocate(2 << 20).unwrap();
        assert_eq!((a, b, space.used()), (end - (4 << 20), end - (6 << 20), 6 << 20));
        space.free_at(a).unwrap();
        assert_eq!(space.allocate(1 << 20).unwrap(), end - (2 << 20), "the gap is taken first");
        assert_eq!(space.allocate(4 << 20).unwrap(), b - (4 << 20), "what does not fit there lies below");
        let mut tiny = Space::new(Paper, BASE, 2 << 20, 16 << 20, true);
        assert_eq!(tiny.allocate(4 << 20), Err(NoRoom));
        assert_eq!(tiny.allocate(2 << 20), Ok(BASE));
    }

    #[test]
    fn small_ones_share_a_page_until_the_last_is_gone() {
        let mut space = card(16);
        let a = space.allocate(1).unwrap();
        let b = space.allocate(513).unwrap();
        assert_eq!((b - a, space.used()), (512, 2 << 20));
        assert_eq!(space.around(b + 1000), Some((b, 1024)));
        space.free_at(a).unwrap();
        assert_eq!(space.used(), 2 << 20);
        space.free_at(b).unwrap();
        assert_eq!(space.used(), 0);
        assert_eq!(space.free_at(b), Err(Unknown));
    }

    #[test]
    fn a_full_card_has_no_room_and_counts_nothing() {
        let mut space = card(8);
        space.take(1 << 20).unwrap();
        assert_eq!(space.allocate(8 << 20), Err(NoRoom));
        assert_eq!(space.used(), 1 << 20);
        assert_eq!(space.allocate(u64::MAX), Err(NoRoom));
    }

    #[test]
    fn what_others_hold_is_not_free() {
        struct Crowded;
        impl Pages for Crowded {
            fn commit(&self, _: u64, _: u64) -> bool {
                true
            }
            fn release(&self, _: u64, _: u64) {}
            fn others(&self) -> u64 {
                6 << 20
            }
        }
        let mut space = Space::new(Crowded, BASE, 1 << 40, 8 << 20, false);
        assert_eq!(space.free(), 2 << 20);
        assert_eq!(space.allocate(4 << 20), Err(NoRoom));
        assert_eq!(space.allocate(2 << 20), Ok(BASE));
        assert_eq!((space.free(), space.used()), (0, 2 << 20));
    }

    #[test]
    fn memory_without_addresses_goes_when_neither_name_nor_mapping_is_left() {
        let mut space = card(16);
        let at = space.reserve(1 << 30, 0).unwrap();
        assert_eq!(space.used(), 0, "addresses cost nothing");
        let name = space.create(4 << 20).unwrap();
        space.map(at, 4 << 20, name).unwrap();
        space.put_back(name).unwrap();
        assert_eq!(space.used(), 4 << 20, "still mapped");
        space.unmap(at, 4 << 20).unwrap();
        assert_eq!(space.used(), 0);
        space.unreserve(at).unwrap();
        assert_eq!(space.unreserve(at), Err(Unknown));
    }
}
