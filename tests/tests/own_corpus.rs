//! The engine against the rows this project traced itself: to the byte.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;

use plimsoll_tests::accuracy::own;

#[test]
fn every_row_is_exact() {
    let mut wrong = Vec::new();
    for row in own().unwrap() {
        let differences = row.differences().unwrap_or_else(|e| panic!("{e:#}"));
        if !differences.is_empty() {
            wrong.push(format!("{} {} ({}): {}", row.id, row.name, row.recipe().summary(), differences.join("; ")));
        }
    }
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Every lever these rows are for, in more than one precision.
#[test]
fn the_rows_cover_their_levers() {
    let rows = own().unwrap();
    let ids: BTreeSet<&str> = rows.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids.len(), rows.len(), "an id stands twice");
    for lever in [
        "8-bit AdamW",
        "lion, for-loop",
        "lion, foreach",
        "lion, fused",
        "muon, foreach",
        "adagrad, foreach",
        "adagrad, for-loop",
        "rmsprop, foreach",
        "rmsprop, for-loop",
        "adafactor-torch, foreach",
        "adafactor-torch, for-loop",
        "keys and values held",
        "adapters in 16 bits",
        "chunked loss",
        "fused-linear loss",
        "label smoothing",
        "EMA",
    ] {
        let of: Vec<_> = rows.iter().filter(|r| r.lever().contains(lever)).collect();
        assert!(!of.is_empty(), "{lever} has no row");
    }
}
