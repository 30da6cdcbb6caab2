//! Snapshots that PyTorch 2.11 wrote on a hollow RTX 4090, of `made/train.py`; what is expected of them is what PyTorch itself
//! said at the end of that run. The folders in them were renamed.
#![allow(clippy::unwrap_used, reason = "a snapshot that cannot be read fails the test")]

use plimsoll_ground::Bytes;
use plimsoll_snapshot::{Course, Device, Parting, Snapshot, Summary};
use proptest::prelude::*;

/// `train.py FILE python 100000 no`.
const WHOLE: &[u8] = include_bytes!("made/whole.pickle");
/// `train.py FILE python 40 oom`: the last forty events, and a request that was in vain.
const LATE: &[u8] = include_bytes!("made/late.pickle");

/// `max_memory_allocated`, `max_memory_reserved`, `memory_allocated` of both.
const PEAK: Bytes = Bytes::new(60_213_760);
const PEAK_RESERVED: Bytes = Bytes::new(88_080_384);
const ALLOCATED: Bytes = Bytes::new(43_284_480);

fn read(bytes: &[u8]) -> (Snapshot, Device, Course, Summary) {
    let snapshot = Snapshot::read(bytes).unwrap();
    let device = snapshot.busiest().unwrap().clone();
    let course = Course::of(&device);
    let summary = Summary::of(&snapshot, &device, &course);
    (snapshot, device, course, summary)
}

#[test]
fn a_whole_history_has_the_peaks_that_pytorch_reported() {
    let (_, _, course, summary) = read(WHOLE);
    assert_eq!((summary.peak, summary.peak_reserved), (PEAK, PEAK_RESERVED));
    assert_eq!((summary.before, summary.peak_from_before), (Bytes::ZERO, Bytes::ZERO));
    assert_eq!((summary.at_end.allocated, summary.at_end.reserved), (ALLOCATED, PEAK_RESERVED));
    assert_eq!(course.live.last(), Some(&ALLOCATED));
    assert_eq!(course.reserved.first(), Some(&Bytes::ZERO));
    assert_eq!((summary.steps, summary.events), (3, 210));
    let held: Bytes = summary.holdings.iter().map(|held| held.bytes).sum();
    assert_eq!(held, summary.peak, "whatever is alive at the peak is held by somebody");
}

#[test]
fn who_holds_the_peak_is_named_by_the_persons_own_code() {
    let (_, _, _, summary) = read(WHOLE);
    let model = summary.holdings.iter().find(|held| held.place.contains("train.py:6 in <module>")).unwrap();
    assert!(model.function.starts_with("module.py:") && model.function.ends_with("in <lambda>"), "{model:?}");
    let states = summary.holdings.iter().find(|held| held.function.ends_with("in _multi_tensor_adam")).unwrap();
    assert!(states.place.ends_with("in step"), "{states:?}");
    // Gradients come from autograd's own thread, which runs no Python.
    assert!(summary.holdings.iter().any(|held| held.function.is_empty()));
}

#[test]
fn what_was_there_before_the_history_is_counted() {
    let (_, _, course, summary) = read(LATE);
    assert_eq!(course.live.last(), Some(&ALLOCATED));
    assert!(summary.before > Bytes::ZERO && summary.peak <= PEAK);
    assert!(summary.peak_from_before > Bytes::ZERO && summary.peak_from_before <= summary.peak);
    let [oom] = &summary.out_of_memory[..] else { panic!("one request was in vain") };
    assert_eq!((oom.asked, oom.live), (Bytes::new(1 << 42), ALLOCATED));
    assert!(oom.place.starts_with("train.py:22 in"), "{oom:?}");
    assert!(course.reserved.first().unwrap() >= course.reserved.last().unwrap(), "the cache was emptied for it");
}

#[test]
fn a_step_of_the_optimizer_is_where_it_marked_it() {
    let (_, device, course, _) = read(WHOLE);
    let first = course.steps[0];
    // The first step makes the states: two of every parameter, and its step count.
    let came = course.storages.iter().filter(|storage| {
        storage.from.is_some_and(|from| (first.begin..first.end).contains(&from)) && storage.to.is_none()
    });
    assert_eq!(came.count(), 4 * 2);
    let last = course.steps.last().unwrap().end;
    assert!(last <= device.trace.len());
    assert_eq!(course.steady(), Some(course.steps[1].end..last));
}

#[test]
fn two_histories_part_at_the_first_request_that_is_not_the_same() {
    let (snapshot, device, ..) = read(WHOLE);
    let same = Parting::of_tensors((&snapshot, &device), (&snapshot, &device));
    assert!(same.agrees() && same.one > 50 && same.equal == same.one);
    let mut other = device.clone();
    let asks = |entry: &plimsoll_snapshot::Entry| entry.action == plimsoll_snapshot::Action::Alloc;
    let at = other.trace.iter().rposition(asks).unwrap();
    other.trace[at].size += Bytes::new(1);
    let parting = Parting::of_tensors((&snapshot, &device), (&snapshot, &other));
    assert_eq!((parting.equal, parting.other), (parting.one - 1, parting.one));
    let (one, more) = (parting.first_of_one.unwrap(), parting.first_of_other.unwrap());
    assert_eq!((one.bytes + Bytes::new(1), &one.by), (more.bytes, &more.by));
    assert!(Parting::of_segments((&snapshot, &device), (&snapshot, &other)).agrees());
    other.trace.truncate(at);
    let parting = Parting::of_tensors((&snapshot, &device), (&snapshot, &other));
    assert!(!parting.agrees() && parting.first_of_other.is_none() && parting.first_of_one.is_some());
}

#[test]
fn what_is_no_snapshot_says_so() {
    for (bytes, said) in [
        (&b"\x80\x04}."[..], "it has no list of segments"),
        (b"\x80\x04}\x8c\x08segments]\x8c\x01xas.", "it has no address in segment 0"),
        (&WHOLE[..WHOLE.len() - 1], "ends in the middle"),
    ] {
        let error = Snapshot::read(bytes).unwrap_err();
        assert!(error.key == "snapshot" && error.problem.contains(said), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Bytes that are changed make another snapshot or an error, whose sums hold all the same.
    #[test]
    fn changed_bytes_are_read_or_refused(
        whole in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = if whole { WHOLE } else { LATE }.to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(snapshot) = Snapshot::read(&bytes) {
            for device in &snapshot.devices {
                let course = Course::of(device);
                prop_assert_eq!(course.live.len(), device.trace.len() + 1);
                let summary = Summary::of(&snapshot, device, &course);
                prop_assert!(summary.at_end.requested <= summary.at_end.allocated);
                prop_assert!(course.heights(64).into_iter().max() == Some(summary.peak));
            }
        }
    }
}
