//! `plimsoll probe run` against a stand-in for the worker that misbehaves in every way a worker can.
//!
//! The stand-in is a Python script of the standard library only, started through `--python`; no PyTorch is needed.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

#[path = "../stub/mod.rs"]
mod stub;

mod asking;
mod cards;
mod inference;
mod memory;
mod misbehaving;
mod record;
mod shown;
mod stopping;

use serde_json::Value;

/// The kinds of a record's events, in order.
fn kinds(record: &Value) -> Vec<&str> {
    record["events"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect()
}

/// `(batch, accumulation, outcome, steps)` of every attempt.
fn attempts(record: &Value) -> Vec<(u64, u64, &str, u64)> {
    let attempt = |a: &Value| {
        let number = |key: &str| a[key].as_u64().unwrap();
        (number("batch"), number("accumulation"), number("steps"), a["outcome"].as_str().unwrap().to_owned())
    };
    let all: Vec<_> = record["attempts"].as_array().unwrap().iter().map(attempt).collect();
    all.into_iter().map(|(b, a, s, o)| (b, a, &*String::leak(o), s)).collect()
}

fn message(record: &Value, kind: &str) -> String {
    let events = record["events"].as_array().unwrap();
    let found = events.iter().find(|e| e["kind"] == kind).unwrap_or_else(|| panic!("no {kind} in {events:?}"));
    found["message"].as_str().unwrap().to_owned()
}
