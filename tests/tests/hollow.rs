//! The engine against what PyTorch's own host code took on simulated cards: to the byte, in allocated and reserved memory.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;

use plimsoll_core::Scenario;
use plimsoll_core::estimate::Run;
use plimsoll_tests::accuracy::{HollowRow, hollow};

/// What a few numbers without dimensions take of the machine's memory, in blocks of one to 64 bytes, which are not followed.
const SCALARS: u64 = 256;

/// A difference that is gone must go from its row as well.
#[test]
fn every_row_is_what_the_card_took_or_differs_as_it_says() {
    let mut wrong = Vec::new();
    for row in hollow().unwrap() {
        let scenario = Scenario::from_value(&row.scenario).unwrap_or_else(|e| panic!("{}: {e}", row.id));
        let run = Run::on_hollow_card(&scenario).unwrap_or_else(|e| panic!("{}: {e}", row.id));
        let peak = &run.estimate().peak;
        let differs = |found: u64, expected: u64| found.cast_signed() - expected.cast_signed();
        let found = (
            differs(peak.allocated.get(), row.expected.allocated),
            differs(peak.reserved.get(), row.expected.reserved),
        );
        if found != (row.differs.allocated, row.differs.reserved) {
            wrong.push(format!("{} {}: {found:?}, said {:?}", row.id, row.name, row.differs));
        }
        let pinned = run.estimate().host.as_ref().map_or(0, |host| host.pinned.get());
        if let Some(took) = row.expected.pinned.filter(|took| took.abs_diff(pinned) > SCALARS) {
            wrong.push(format!("{} {}: {pinned} page-locked, of {took}", row.id, row.name));
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

/// The allocator asks the driver for at least so much: one more or one fewer of them is much of a small run.
const SEGMENT: u64 = 2 << 20;

/// What the project promises of them: allocated to the byte in nine of ten and none further than half a hundredth, reserved in three
/// of four and none further than a fiftieth, or a single segment.
#[test]
fn most_rows_are_exact_and_none_is_far() {
    let rows = hollow().unwrap();
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids.len(), rows.len(), "an id stands twice");
    let exact = |differs: fn(&HollowRow) -> i64| rows.iter().filter(|row| differs(row) == 0).count();
    let allocated = exact(|row| row.differs.allocated);
    assert!(allocated * 10 >= rows.len() * 9, "{allocated} of {}", rows.len());
    let reserved = exact(|row| row.differs.reserved);
    assert!(reserved * 4 >= rows.len() * 3, "{reserved} of {}", rows.len());
    for HollowRow { id, name, differs, expected, .. } in &rows {
        let (allocated, reserved) = (differs.allocated.unsigned_abs(), differs.reserved.unsigned_abs());
        assert!(allocated <= expected.allocated / 200, "{id} {name}: {allocated}");
        assert!(reserved <= SEGMENT.max(expected.reserved / 50), "{id} {name}: {reserved}");
    }
}
