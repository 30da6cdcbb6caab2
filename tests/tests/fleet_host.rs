//! The machine's own memory beside several cards: the engine against what PyTorch's two allocators gave out there, phase by phase.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, reason = "a row that cannot be read fails the test")]

use plimsoll_core::estimate::{HostPhase, Run};
use plimsoll_core::scenario::Scenario;
use serde_json::Value;

/// What norms, steps and lists of the host's take beside tensors of the model's.
const SMALL: u64 = 128 << 10;

/// Where the engine says otherwise: phase, what, ours, theirs.
fn differences(row: &Value) -> Vec<String> {
    let id = row["id"].as_str().unwrap();
    let scenario = Scenario::from_value(&row["scenario"]).unwrap_or_else(|error| panic!("{id}: {error}"));
    let run = Run::new(&scenario).unwrap_or_else(|error| panic!("{id}: {error}"));
    let ours = run.host_phases();
    let mut wrong = Vec::new();
    for theirs in row["phases"].as_array().unwrap() {
        let of = |key: &str| theirs[key].as_u64();
        let named = |p: &&HostPhase| {
            serde_json::to_value(p.name).unwrap() == theirs["name"]
                && p.step.map(u64::from) == of("step")
                && p.micro_batch == of("micro_batch")
        };
        let found = ours.iter().find(named);
        let of_ours = |value: fn(&HostPhase) -> u64| found.map_or(0, value);
        let mut lay = |what: &str, ours: u64| {
            let theirs_said = of(what).unwrap();
            if ours.abs_diff(theirs_said) > SMALL {
                wrong.push(format!(
                    "{id}: {}@{:?}.{:?} {what} {ours} for {theirs_said} ({:+})",
                    theirs["name"].as_str().unwrap(),
                    of("step"),
                    of("micro_batch"),
                    ours as i64 - theirs_said as i64
                ));
            }
        };
        lay("pageable_peak", of_ours(|phase| phase.pageable_peak.get()));
        lay("pageable_end", of_ours(|phase| phase.pageable_end.get()));
        lay("pinned_end", of_ours(|phase| phase.pinned_end.get()));
    }
    wrong
}

#[test]
fn the_machines_memory_is_what_pytorch_asks_for() {
    let rows =
        include_str!("../corpus/fleet-host.jsonl").lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let wrong: Vec<Vec<String>> = rows.map(|row| differences(&row)).filter(|wrong| !wrong.is_empty()).collect();
    let shown: Vec<&String> = wrong.iter().flat_map(|of_row| of_row.iter().take(12)).collect();
    assert!(wrong.is_empty(), "{} rows differ:\n{shown:#?}", wrong.len());
}
