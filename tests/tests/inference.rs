//! The rows of `corpus/own-inference.jsonl`: inference as PyTorch and transformers ran it, phase by phase to the byte.

use plimsoll_core::estimate::Run;
use plimsoll_core::ledger::{Event, Ledger, PhaseName};
use plimsoll_core::{Bytes, Scenario};
use serde::Deserialize;
use serde_json::Value;

const ROWS: &str = include_str!("../corpus/own-inference.jsonl");

#[derive(Debug, Deserialize)]
struct Row {
    id: String,
    scenario: Value,
    expected: Expected,
}

#[derive(Debug, Deserialize)]
struct Expected {
    parameters: u64,
    phases: Vec<ExpectedPhase>,
    /// Storages that were allocated in all.
    allocations: usize,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct ExpectedPhase {
    name: String,
    peak_requested: Bytes,
    end_requested: Bytes,
}

#[test]
fn every_row_agrees_to_the_byte() {
    let rows: Vec<Row> = ROWS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() > 150, "{} rows", rows.len());
    for row in rows {
        let run = Run::new(&Scenario::from_value(&row.scenario).unwrap()).unwrap();
        let estimate = run.estimate();
        assert_eq!(estimate.parameters.total, row.expected.parameters, "{}", row.id);
        let mut phases: Vec<ExpectedPhase> = estimate
            .phases
            .iter()
            .map(|p| ExpectedPhase {
                name: p.name.as_str().to_owned(),
                peak_requested: p.peak_requested,
                end_requested: p.end_requested,
            })
            .collect();
        // What infers was traced once, and is counted twice.
        let traced = row.expected.phases.len();
        let rest: Vec<&str> = phases[traced..].iter().map(|phase| phase.name.as_str()).collect();
        let again: Vec<&str> = row.expected.phases[1..].iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(rest, again, "{}", row.id);
        let ledger = run.ledger();
        let generates = again[1] != "forward";
        if generates {
            // The tracer's generations end where the last token is known.
            phases[traced - 1].end_requested = known(ledger, traced - 1);
        }
        assert_eq!(phases[..traced], row.expected.phases, "{}", row.id);
        let end = ledger.phases.get(traced).map_or(ledger.events.len(), |next| next.at);
        let allocations = ledger.events[..end].iter().filter(|e| !e.is_free()).count();
        assert_eq!(allocations, row.expected.allocations, "{}", row.id);
    }
}

/// What is alive in a phase of a generation where its last token is known: the card was asked whether all are finished, and of the
/// two numbers that this made the first is gone.
fn known(ledger: &Ledger, phase: usize) -> Bytes {
    let end = ledger.phases.get(phase + 1).map_or(ledger.events.len(), |next| next.at);
    let asked = ledger.events[..end].iter().rposition(|event| !event.is_free()).unwrap_or_default();
    let size = |event: &Event| ledger.storages[event.id() as usize].bytes.next_multiple_of(512);
    let alive = ledger.events[..=asked + 1].iter().fold(0, |alive, event| match event.is_free() {
        true => alive - size(event),
        false => alive + size(event),
    });
    Bytes::new(alive)
}

/// A cache that grows to the end makes the last token the highest of its decode, however many are skipped on the way.
#[test]
fn a_long_generation_ends_where_its_cache_is_largest() {
    let scenario = |tokens: u64| {
        serde_json::json!({
            "model": {"catalog": "llama-3.2-1b"},
            "input": {"batch": 4, "seq": 512, "max_new_tokens": tokens},
            "training": {"mode": "inference", "precision": "bf16"},
            "device": {"gpu": "a100-80gb", "workspaces": false}
        })
    };
    let end = |tokens: u64| {
        let run = Run::new(&Scenario::from_value(&scenario(tokens)).unwrap()).unwrap();
        let decode = run.ledger().phases.iter().position(|phase| phase.name == PhaseName::Decode).unwrap();
        (known(run.ledger(), decode), run.ledger().events.len())
    };
    // 16 layers of 8 heads of 64, keys and values in two bytes, for each token of each of the four samples.
    let per_token = 16 * 2 * 8 * 64 * 2 * 4;
    let ((short, _), (long, events)) = (end(101), end(4101));
    let grown = long.get() - short.get();
    let others = grown - 4000 * per_token;
    // Ids, masks and positions of 8 bytes each, and what Python holds of the last ones.
    assert!(others < 4000 * 8 * 4 * 8, "{others}");
    assert!(events < 1_200_000, "{events} events for 4,100 tokens");
}
