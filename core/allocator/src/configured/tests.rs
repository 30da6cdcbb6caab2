//! Against the allocator of the defaults, and what settings change.

use plimsoll_ledger::Stream;
use proptest::prelude::*;

use super::super::CachingAllocator;
use super::*;

/// What an allocator is asked: to give so many bytes on a stream, or to take back what it gave at this turn.
#[derive(Clone, Debug)]
enum Asked {
    Give(u64, u8),
    Take(usize),
}

fn asked() -> impl Strategy<Value = Vec<Asked>> {
    let bytes = prop_oneof![1..4096u64, 4096..2 * MIB, 2 * MIB..40 * MIB];
    let one = prop_oneof![
        3 => (bytes, 0..2u8).prop_map(|(bytes, stream)| Asked::Give(bytes, stream)),
        2 => (0..64usize).prop_map(Asked::Take),
    ];
    prop::collection::vec(one, 1..120)
}

proptest! {
    /// With nothing set it is the allocator that is made to be fast.
    #[test]
    fn without_settings_it_is_the_plain_one(asked in asked(), limit in prop_oneof![Just(None), (50..400u64).prop_map(Some)]) {
        let limit = limit.map(Bytes::from_mib);
        let mut plain = CachingAllocator::new(limit);
        let mut set = ConfiguredAllocator::new(Settings::default(), limit);
        for (id, asked) in (0u32..).zip(asked) {
            match asked {
                Asked::Give(bytes, stream) => {
                    let (size, stream) = (Bytes::new(bytes), Stream::new(stream));
                    prop_assert_eq!(plain.alloc(id, size, stream), set.alloc(id, size, stream));
                }
                Asked::Take(turn) => {
                    plain.free(turn as u32);
                    set.free(turn as u32);
                }
            }
            prop_assert_eq!((plain.allocated(), plain.reserved(), plain.retries()), (set.allocated(), set.reserved(), set.retries()));
        }
    }

    /// Segments that grow never take less than is in use, nor more than the next page of each pool and stream would.
    #[test]
    fn what_grows_covers_what_is_in_use(asked in asked()) {
        let mut set = ConfiguredAllocator::new(Settings { expandable_segments: true, ..Settings::default() }, None);
        for (id, asked) in (0u32..).zip(asked) {
            match asked {
                Asked::Give(bytes, stream) => prop_assert!(set.alloc(id, Bytes::new(bytes), Stream::new(stream)).is_ok()),
                Asked::Take(turn) => set.free(turn as u32),
            }
            prop_assert!(set.reserved() >= set.allocated());
        }
        set.empty_cache();
        prop_assert!(set.reserved() >= set.allocated());
    }
}

/// A block that grows serves what no block has room for: where two segments of their own would be taken, one of three pages is.
#[test]
fn a_segment_grows_where_it_lies() {
    let mut set = ConfiguredAllocator::new(Settings { expandable_segments: true, ..Settings::default() }, None);
    for (id, mib) in [(0, 15), (1, 15)] {
        assert_eq!(set.alloc(id, Bytes::from_mib(mib), Stream::DEFAULT), Ok(()));
    }
    assert_eq!(set.reserved(), Bytes::from_mib(40));
    set.free(0);
    set.free(1);
    assert_eq!(set.alloc(2, Bytes::from_mib(45), Stream::DEFAULT), Ok(()));
    assert_eq!(set.reserved(), Bytes::from_mib(60));
    set.free(2);
    set.empty_cache();
    assert_eq!(set.reserved(), Bytes::ZERO);
}
