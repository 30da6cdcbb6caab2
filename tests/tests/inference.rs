//! The rows of `corpus/own-inference.jsonl`: inference as PyTorch and transformers ran it, phase by phase to the byte.

use plimsoll_core::estimate::Run;
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
        let phases: Vec<ExpectedPhase> = estimate
            .phases
            .iter()
            .map(|p| ExpectedPhase {
                name: p.name.as_str().to_owned(),
                peak_requested: p.peak_requested,
                end_requested: p.end_requested,
            })
            .collect();
        // A forward pass was traced over one batch, and is counted with a second.
        let traced = row.expected.phases.len();
        assert_eq!(phases[..traced.min(phases.len())], row.expected.phases, "{}", row.id);
        let ledger = run.ledger();
        let end = ledger.phases.get(traced).map_or(ledger.events.len(), |next| next.at);
        let rest: Vec<&str> = phases[traced..].iter().map(|phase| phase.name.as_str()).collect();
        assert!(rest.is_empty() || rest == ["input", "forward"], "{}: {rest:?}", row.id);
        let allocations = ledger.events[..end].iter().filter(|e| !e.is_free()).count();
        assert_eq!(allocations, row.expected.allocations, "{}", row.id);
    }
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
        let estimate = run.estimate();
        (estimate.phases.last().unwrap().end_requested, run.ledger().events.len())
    };
    // 16 layers of 8 heads of 64, keys and values in two bytes, for each token of each of the four samples.
    let per_token = 16 * 2 * 8 * 64 * 2 * 4;
    let ((short, _), (long, events)) = (end(101), end(4101));
    let grown = long.get() - short.get();
    let others = grown - 4000 * per_token;
    // Ids, masks and positions of 8 bytes each, and what Python holds of the last ones.
    assert!(others < 4000 * 8 * 4 * 8, "{others}");
    assert!(events < 1 << 20, "{events} events for 4,100 tokens");
}
