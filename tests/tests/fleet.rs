//! Several cards: the engine against what PyTorch's and DeepSpeed's wrappers themselves allocate, phase by phase, to the byte.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, reason = "a row that cannot be read fails the test")]

use plimsoll_core::estimate::{Phase, Run};
use plimsoll_core::scenario::Scenario;
use serde_json::Value;

/// One traced rank.
struct Row {
    id: String,
    scenario: Scenario,
    expected: Value,
}

fn rows() -> Vec<Row> {
    let given = include_str!("../corpus/fleet.jsonl").lines();
    given
        .chain(include_str!("../corpus/fleet-hollow.jsonl").lines())
        .map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            let id = row["id"].as_str().unwrap().to_owned();
            let scenario = Scenario::from_value(&row["scenario"]).unwrap_or_else(|error| panic!("{id}: {error}"));
            Row { id, scenario, expected: row["expected"].clone() }
        })
        .collect()
}

/// The phase's word in a scenario.
fn word(phase: &Phase) -> String {
    serde_json::to_value(phase.name).unwrap().as_str().unwrap().to_owned()
}

fn name(phase: &Phase) -> String {
    match (phase.step, phase.micro_batch) {
        (Some(step), Some(micro_batch)) => format!("{}@{step}.{micro_batch}", word(phase)),
        (Some(step), None) => format!("{}@{step}", word(phase)),
        _ => word(phase),
    }
}

/// Lays phases beside those of a trace.
fn lay_phases(of: &str, ours: &[Phase], theirs: &Value, lay: &mut impl FnMut(&str, &str, u64, &Value)) {
    for theirs in theirs["phases"].as_array().unwrap() {
        let named = theirs["name"].as_str().unwrap();
        let place = format!("{of}{named}");
        match ours.iter().find(|phase| name(phase) == named) {
            Some(ours) => {
                lay(&place, "peak", ours.peak_requested.get(), &theirs["peak"]);
                lay(&place, "end", ours.end_requested.get(), &theirs["end"]);
                if let Some(reserved) = theirs.get("reserved") {
                    lay(&place, "reserved", ours.end_reserved.get(), reserved);
                }
            }
            None => lay(&place, "is missing", 0, &theirs["end"]),
        }
    }
}

/// Where the engine says otherwise than the trace: phase, what, ours, theirs.
fn differences(row: &Row) -> Vec<String> {
    let run = Run::on_hollow_card(&row.scenario).unwrap_or_else(|error| panic!("{}: {error}", row.id));
    let estimate = run.estimate();
    let mut wrong = Vec::new();
    let mut lay = |phase: &str, what: &str, ours: u64, theirs: &Value| {
        let theirs = theirs.as_u64().unwrap();
        if ours != theirs {
            wrong.push(format!("{}: {phase} {what} {ours} for {theirs} ({:+})", row.id, ours as i64 - theirs as i64));
        }
    };
    lay("all", "parameters", estimate.parameters.total, &row.expected["parameters"]["total"]);
    lay("all", "trained", estimate.parameters.trainable, &row.expected["parameters"]["trainable"]);
    lay("all", "peak", estimate.peak.requested.get(), &row.expected["peak"]);
    lay_phases("", &estimate.phases, &row.expected, &mut lay);
    if let Some(theirs) = row.expected.get("swapped") {
        let nvme = estimate.host.as_ref().and_then(|host| host.nvme);
        lay("nvme", "files", nvme.map_or(0, |nvme| nvme.of_process.get()), &theirs["nvme"]);
        lay("nvme", "buffers", nvme.map_or(0, |nvme| nvme.buffers.get()), &theirs["buffers"]);
    }
    if let Some(theirs) = row.expected.get("replica") {
        let replica = &estimate.roles[1];
        lay_phases("replica ", &replica.phases, theirs, &mut lay);
        lay("replica", "peak", replica.peak.requested.get(), &theirs["peak"]);
        lay("replica", "allocated", replica.peak.allocated.get(), &theirs["allocated"]);
        lay("replica", "reserved", replica.peak.reserved.get(), &theirs["reserved"]);
    }
    wrong
}

#[test]
fn every_rank_is_exact_in_every_phase() {
    let wrong: Vec<Vec<String>> = rows().iter().map(differences).filter(|wrong| !wrong.is_empty()).collect();
    let shown: Vec<&String> = wrong.iter().flat_map(|of_row| of_row.iter().take(30)).collect();
    assert!(wrong.is_empty(), "{} rows are not exact:\n{shown:#?}", wrong.len());
}
