//! Runs that others measured on cards, against today's estimate of them.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;

use plimsoll_tests::accuracy::{Rerun, Spread, runs};

#[test]
fn every_run_is_a_scenario_and_stands_once() {
    let all = runs().unwrap();
    let ids: BTreeSet<&str> = all.iter().map(|run| run.run.id.as_str()).collect();
    assert_eq!(ids.len(), all.len());
}

/// Whether a run fits is what people ask first. All of these did, some of them with nothing to spare.
#[test]
fn what_fitted_fits() {
    for run in runs().unwrap() {
        assert!(run.fits, "{} {}: {} MiB", run.run.id, run.run.what, run.reserved >> 20);
    }
}

/// Half of them to the MiB.
#[test]
fn the_estimates_are_near() {
    let spread = Spread::of(runs().unwrap().iter().map(Rerun::error));
    assert!(spread.median <= 0.0001 && spread.p95 <= 0.07, "{spread:?}");
}
