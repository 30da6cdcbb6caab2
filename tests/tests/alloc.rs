//! The caching allocator's settings: the engine's replay against PyTorch's own allocator with the same settings, on simulated cards.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, reason = "a row that cannot be read fails the test")]

use plimsoll_core::estimate::Run;
use plimsoll_core::scenario::Scenario;
use serde_json::Value;

/// Of every run and every phase of it, to the byte; where a row says that it differs, by that.
#[test]
fn what_is_reserved_is_what_pytorch_reserves_with_the_same_settings() {
    let mut wrong = Vec::new();
    for line in include_str!("../corpus/alloc.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let id = row["id"].as_str().unwrap();
        let scenario = Scenario::from_value(&row["scenario"]).unwrap_or_else(|error| panic!("{id}: {error}"));
        let run = Run::on_hollow_card(&scenario).unwrap_or_else(|error| panic!("{id}: {error}"));
        let estimate = run.estimate();
        let differs = |what: &str, ours: u64| {
            let theirs = row["expected"][what].as_u64().unwrap();
            ours.cast_signed() - theirs.cast_signed() - row["differs"][what].as_i64().unwrap_or(0)
        };
        let found =
            (differs("allocated", estimate.peak.allocated.get()), differs("reserved", estimate.peak.reserved.get()));
        if found != (0, 0) {
            wrong.push(format!("{id}: {found:?}"));
        }
        if row.get("differs").is_some() {
            continue;
        }
        for (ours, theirs) in estimate.phases.iter().zip(row["expected"]["phases"].as_array().unwrap()) {
            if Some(ours.peak_reserved.get()) != theirs["peak_reserved"].as_u64() {
                wrong.push(format!(
                    "{id}: {} {:?} reserved {} for {}",
                    ours.name.as_str(),
                    ours.step,
                    ours.peak_reserved,
                    theirs["peak_reserved"]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}
