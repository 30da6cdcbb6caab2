//! The engine against `corpus/own-adapters.jsonl`: adapters, saved modules and quantized bases that this project traced
//! itself, to the byte.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, reason = "a row that cannot be read fails the test")]

use std::collections::BTreeSet;

use plimsoll_core::estimate::Run;
use plimsoll_core::{Bytes, Scenario};
use serde::Deserialize;
use serde_json::Value;

const ROWS: &str = include_str!("../corpus/own-adapters.jsonl");

/// One training run as PyTorch, peft and bitsandbytes ran it.
#[derive(Deserialize)]
struct Row {
    id: String,
    name: String,
    scenario: Value,
    expected: Expected,
}

/// Sizes are of live storages, each rounded to 512 bytes: no allocator had a part in them.
#[derive(Deserialize)]
struct Expected {
    parameters: u64,
    trainable: u64,
    /// How many storages came and went.
    events: u64,
    peak_requested: Bytes,
    phases: Vec<Phase>,
}

#[derive(Deserialize, PartialEq, Eq, Debug)]
struct Phase {
    name: String,
    peak_requested: Bytes,
    end_requested: Bytes,
}

fn rows() -> Vec<Row> {
    ROWS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl Row {
    fn differences(&self) -> Vec<String> {
        let run = Run::new(&Scenario::from_value(&self.scenario).unwrap()).unwrap();
        let (estimate, expected) = (run.estimate(), &self.expected);
        let mut found = Vec::new();
        let mut compare = |what: &str, ours: u64, theirs: u64| {
            if ours != theirs {
                found.push(format!("{what}: {ours} instead of {theirs}"));
            }
        };
        compare("parameters", estimate.parameters.total, expected.parameters);
        compare("trained parameters", estimate.parameters.trainable, expected.trainable);
        compare("births and deaths", run.ledger().events.len() as u64, expected.events);
        compare("peak", estimate.peak.requested.get(), expected.peak_requested.get());
        let phases: Vec<Phase> = estimate
            .phases
            .iter()
            .map(|phase| Phase {
                name: phase.name.as_str().to_owned(),
                peak_requested: phase.peak_requested,
                end_requested: phase.end_requested,
            })
            .collect();
        compare("phases", phases.len() as u64, expected.phases.len() as u64);
        if let Some((ours, theirs)) = phases.iter().zip(&expected.phases).find(|(ours, theirs)| ours != theirs) {
            found.push(format!("{ours:?} instead of {theirs:?}"));
        }
        found
    }
}

#[test]
fn every_row_is_exact() {
    let wrong: Vec<String> = rows()
        .iter()
        .map(|row| (row, row.differences()))
        .filter(|(_, differences)| !differences.is_empty())
        .map(|(row, differences)| {
            let training = &row.scenario["training"];
            let lever =
                ["precision", "quantization", "prepare_kbit", "lora"].map(|key| training[key].to_string()).join(" ");
            format!("{} ({}, {lever}): {}", row.id, row.name, differences.join("; "))
        })
        .collect();
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Every lever these rows are for, plain and under checkpoints, on a decoder and on a `Conv1D` model.
#[test]
fn the_rows_cover_their_levers() {
    let rows = rows();
    assert_eq!(rows.iter().map(|row| &row.id).collect::<BTreeSet<_>>().len(), rows.len(), "an id stands twice");
    let have = |what: &str, test: &dyn Fn(&Value) -> bool| {
        let of: Vec<&Row> = rows.iter().filter(|row| test(&row.scenario["training"])).collect();
        let families: BTreeSet<&str> =
            of.iter().filter_map(|r| r.scenario["model"]["hf"]["model_type"].as_str()).collect();
        let precisions: BTreeSet<&str> =
            of.iter().filter_map(|r| r.scenario["training"]["precision"].as_str()).collect();
        assert!(families.len() >= 2 && precisions.len() >= 2, "{what}: {families:?}, {precisions:?}");
        assert!(of.iter().any(|r| r.scenario["training"]["checkpointing"] == "full"), "{what} under checkpoints");
    };
    for quantization in ["int8", "nf4"] {
        have(quantization, &|training| training["quantization"] == quantization);
    }
    have("a base as it was loaded", &|training| training["prepare_kbit"] == false);
    have("DoRA", &|training| training["lora"]["dora"] == true);
    have("modules to save", &|training| training["lora"]["modules_to_save"].is_array());
    assert!(rows.iter().any(|row| row.scenario["training"]["quantization"] == "nf4-double"));
}
