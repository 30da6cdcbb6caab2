//! One test per rule of the allocator.

use plimsoll_ledger::Stream;

use super::{Bytes, CachingAllocator, OutOfMemory};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Allocates ids 0, 1, 2 ... of these sizes.
fn filled(limit: Option<u64>, sizes: &[u64]) -> CachingAllocator {
    let mut allocator = CachingAllocator::new(limit.map(Bytes::new));
    for (id, &size) in (0..).zip(sizes) {
        allocator.alloc(id, Bytes::new(size), Stream::DEFAULT).unwrap();
    }
    allocator
}

fn books(allocator: &CachingAllocator) -> (u64, u64) {
    (allocator.allocated().get(), allocator.reserved().get())
}

#[test]
fn requests_are_rounded_up_to_512_bytes() {
    assert_eq!(books(&filled(None, &[1])).0, 512);
    assert_eq!(books(&filled(None, &[512])).0, 512);
    assert_eq!(books(&filled(None, &[513])).0, 1024);
}

#[test]
fn an_empty_storage_takes_nothing() {
    let mut allocator = filled(None, &[0]);
    assert_eq!(books(&allocator), (0, 0));
    allocator.free(0);
    assert_eq!(books(&allocator), (0, 0));
}

#[test]
fn segments_by_size_of_the_request() {
    let reserved = |size| books(&filled(None, &[size])).1;
    assert_eq!(reserved(1), 2 * MIB);
    assert_eq!(reserved(MIB), 2 * MIB);
    assert_eq!(reserved(MIB + 1), 20 * MIB);
    assert_eq!(reserved(10 * MIB - 512), 20 * MIB);
    assert_eq!(reserved(10 * MIB), 10 * MIB);
    assert_eq!(reserved(10 * MIB + 1), 12 * MIB);
    assert_eq!(reserved(12 * MIB), 12 * MIB);
}

#[test]
fn small_and_large_requests_do_not_share_segments() {
    assert_eq!(books(&filled(None, &[2 * MIB, MIB, 2 * MIB])).1, 22 * MIB);
}

#[test]
fn a_small_block_is_split_down_to_512_bytes() {
    // Fills 2 MiB to the last 512 bytes, which the last storage then finds.
    assert_eq!(books(&filled(None, &[MIB, MIB - 512, 512])), (2 * MIB, 2 * MIB));
}

#[test]
fn a_large_block_keeps_a_rest_of_up_to_1_mib() {
    // 10 MiB + 512 in a segment of 12 MiB: the rest of 2 MiB - 512 is split off.
    assert_eq!(books(&filled(None, &[10 * MIB + 512])).0, 10 * MIB + 512);
    // 11 MiB: a rest of exactly 1 MiB is not, and counts as allocated.
    assert_eq!(books(&filled(None, &[11 * MIB])).0, 12 * MIB);
    assert_eq!(books(&filled(None, &[11 * MIB - 512])).0, 11 * MIB - 512);
}

#[test]
fn the_smallest_block_that_is_large_enough_is_taken() {
    let mut allocator = filled(None, &[30 * MIB, 20 * MIB, 40 * MIB]);
    for id in 0..3 {
        allocator.free(id);
    }
    // Each of these fits only if those before took the tightest block.
    for (id, size) in [(3, 20), (4, 30), (5, 40)] {
        allocator.alloc(id, Bytes::from_mib(size), Stream::DEFAULT).unwrap();
    }
    assert_eq!(books(&allocator), (90 * MIB, 90 * MIB));
}

/// What is reserved when, of two full segments of 20 MiB, the middle block of each is freed, that of the second segment first, one of
/// the two taken again, and the rest of the second segment freed before 20 MiB are wanted.
fn after_one_of_equal_blocks(mut allocator: CachingAllocator) -> (u64, u64) {
    let take = |allocator: &mut CachingAllocator, id, size| {
        allocator.alloc(id, Bytes::from_mib(size), Stream::DEFAULT).unwrap();
    };
    for (id, size) in (0..).zip([8, 8, 4, 8, 8, 4]) {
        take(&mut allocator, id, size);
    }
    assert_eq!(books(&allocator), (40 * MIB, 40 * MIB));
    allocator.free(4);
    allocator.free(1);
    take(&mut allocator, 6, 8);
    allocator.free(3);
    allocator.free(5);
    take(&mut allocator, 7, 20);
    books(&allocator)
}

#[test]
fn among_equal_blocks_the_lowest_address_is_taken() {
    // In the first segment: the second is one free block again.
    assert_eq!(after_one_of_equal_blocks(CachingAllocator::new(None)), (40 * MIB, 40 * MIB));
}

#[test]
fn where_segments_fall_that_is_in_the_last_one() {
    // In the second segment: it is not free, and another is needed.
    assert_eq!(after_one_of_equal_blocks(CachingAllocator::new(None).falling(true)), (40 * MIB, 60 * MIB));
}

#[test]
fn a_freed_block_merges_with_both_neighbours() {
    for order in [[0, 1, 2], [2, 1, 0], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1]] {
        let mut allocator = filled(None, &[5 * MIB, 5 * MIB, 5 * MIB]);
        for id in order {
            allocator.free(id);
        }
        allocator.alloc(3, Bytes::from_mib(20), Stream::DEFAULT).unwrap();
        assert_eq!(books(&allocator), (20 * MIB, 20 * MIB), "{order:?}");
    }
}

#[test]
fn blocks_of_different_segments_do_not_merge() {
    let mut allocator = filled(None, &[20 * MIB, 20 * MIB]);
    allocator.free(0);
    allocator.free(1);
    allocator.alloc(2, Bytes::from_mib(40), Stream::DEFAULT).unwrap();
    assert_eq!(books(&allocator), (40 * MIB, 80 * MIB));
}

#[test]
fn segments_stay_reserved_and_peaks_stay_up() {
    let mut allocator = filled(None, &[100 * MIB, 100 * MIB]);
    allocator.free(0);
    allocator.free(1);
    assert_eq!(books(&allocator), (0, 200 * MIB));
    assert_eq!(allocator.peak_allocated(), Bytes::from_mib(200));
    assert_eq!(allocator.peak_reserved(), Bytes::from_mib(200));
}

#[test]
fn a_full_card_gives_its_whole_free_segments_back_and_tries_again() {
    let mut allocator = filled(Some(64 * MIB), &[20 * MIB, 20 * MIB, 512]);
    allocator.free(0);
    allocator.free(1);
    allocator.alloc(3, Bytes::from_mib(50), Stream::DEFAULT).unwrap();
    // Both large segments went; the small one holds storage 2 and stayed.
    assert_eq!(books(&allocator), (50 * MIB + 512, 52 * MIB));
    assert_eq!((allocator.retries(), allocator.peak_reserved().get()), (1, 52 * MIB));
}

#[test]
fn cached_small_segments_are_given_back_too() {
    let mut allocator = filled(Some(20 * MIB), &[512]);
    allocator.free(0);
    allocator.alloc(1, Bytes::from_mib(20), Stream::DEFAULT).unwrap();
    assert_eq!(books(&allocator), (20 * MIB, 20 * MIB));
}

#[test]
fn a_segment_in_part_use_cannot_be_given_back() {
    let mut allocator = filled(Some(40 * MIB), &[5 * MIB, 15 * MIB]);
    allocator.free(1);
    let error = allocator.alloc(2, Bytes::from_mib(21), Stream::DEFAULT).unwrap_err();
    let expected = OutOfMemory {
        requested: Bytes::from_mib(21),
        allocated: Bytes::from_mib(5),
        reserved: Bytes::from_mib(20),
        limit: Some(Bytes::from_mib(40)),
    };
    assert_eq!((error, allocator.retries()), (expected, 1));
    assert_eq!(
        error.to_string(),
        "out of memory: 21.0 MiB were asked for, 5.0 MiB are allocated and 20.0 MiB reserved of 40.0 MiB; \
         a smaller batch or checkpointing needs less"
    );
}

#[test]
fn after_a_refusal_the_allocator_goes_on() {
    let mut allocator = filled(Some(20 * MIB), &[5 * MIB]);
    assert!(allocator.alloc(1, Bytes::from_mib(30), Stream::DEFAULT).is_err());
    allocator.free(1);
    allocator.alloc(2, Bytes::from_mib(15), Stream::DEFAULT).unwrap();
    assert_eq!(books(&allocator), (20 * MIB, 20 * MIB));
}

#[test]
fn freeing_twice_or_what_never_was_does_nothing() {
    let mut allocator = filled(None, &[5 * MIB]);
    allocator.free(0);
    allocator.free(0);
    allocator.free(7);
    assert_eq!(books(&allocator), (0, 20 * MIB));
}

#[test]
fn ids_may_leave_gaps() {
    let mut allocator = CachingAllocator::with_capacity(None, 4);
    allocator.alloc(9, Bytes::new(4 * KIB), Stream::DEFAULT).unwrap();
    allocator.free(9);
    allocator.alloc(3, Bytes::new(4 * KIB), Stream::DEFAULT).unwrap();
    assert_eq!(books(&allocator), (4 * KIB, 2 * MIB));
}

#[test]
fn astronomical_requests_are_refused() {
    let mut allocator = CachingAllocator::new(None);
    for (id, size) in [(0, u64::MAX), (1, u64::MAX - 512), (2, 1 << 63), (3, 1 << 45)] {
        let error = allocator.alloc(id, Bytes::new(size), Stream::DEFAULT).unwrap_err();
        assert!(error.to_string().contains("more than any card"), "{error}");
    }
    // The largest block there can be, as often as the address space holds it.
    let largest = Bytes::new((1 << 45) - 2 * MIB);
    let granted = (4..100).take_while(|&id| allocator.alloc(id, largest, Stream::DEFAULT).is_ok()).count();
    assert_eq!(granted, 8);
}

/// `BlockComparatorSize` compares streams first: a block serves the stream it was allocated on, and no other.
#[test]
fn a_freed_block_stays_with_its_stream() {
    let mut allocator = filled(None, &[20 * MIB]);
    allocator.free(0);
    let side = Stream::new(1);
    allocator.alloc(1, Bytes::from_mib(20), side).unwrap();
    assert_eq!(books(&allocator), (20 * MIB, 40 * MIB), "the free block of the default stream is not taken");
    allocator.free(1);
    allocator.alloc(2, Bytes::from_mib(20), side).unwrap();
    allocator.alloc(3, Bytes::from_mib(20), Stream::DEFAULT).unwrap();
    assert_eq!(books(&allocator), (40 * MIB, 40 * MIB), "each stream finds its own again");
}

/// `release_cached_blocks` gives back what any stream has cached.
#[test]
fn what_other_streams_have_cached_makes_room() {
    let mut allocator = filled(Some(40 * MIB), &[40 * MIB]);
    allocator.free(0);
    allocator.alloc(1, Bytes::from_mib(30), Stream::new(2)).unwrap();
    assert_eq!((books(&allocator), allocator.retries()), ((30 * MIB, 30 * MIB), 1));
}

/// `free` in `CUDACachingAllocator.cpp`: `allocated_bytes` falls at once, the block returns with `process_events`; and where there is no
/// room `release_cached_blocks` waits for all events first.
#[test]
fn a_block_that_another_stream_works_on_serves_nobody_until_that_has_passed() {
    let side = Stream::new(1);
    let mut allocator = filled(None, &[20 * MIB]);
    allocator.free_behind(0, side, 5);
    assert_eq!(books(&allocator), (0, 20 * MIB));
    allocator.alloc(1, Bytes::new(20 * MIB), Stream::DEFAULT).unwrap();
    assert_eq!(books(&allocator), (20 * MIB, 40 * MIB));
    allocator.passed(side, 4);
    allocator.passed(Stream::DEFAULT, 9);
    allocator.alloc(2, Bytes::new(20 * MIB), Stream::DEFAULT).unwrap();
    assert_eq!(books(&allocator).1, 60 * MIB);
    allocator.passed(side, 5);
    allocator.alloc(3, Bytes::new(20 * MIB), Stream::DEFAULT).unwrap();
    assert_eq!(books(&allocator), (60 * MIB, 60 * MIB));

    let mut full = filled(Some(40 * MIB), &[20 * MIB, 20 * MIB]);
    full.free_behind(0, side, 0);
    full.alloc(2, Bytes::new(20 * MIB), side).unwrap();
    assert_eq!((books(&full), full.retries()), ((40 * MIB, 40 * MIB), 1));
}
