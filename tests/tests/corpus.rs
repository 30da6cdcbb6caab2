//! The engine against the reference corpus: the thresholds the project promises.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;
use std::sync::OnceLock;

use plimsoll_tests::accuracy::{Outcome, Score, Spread, compare, evaluate, traced};

/// All rows, run once for every test of this file.
fn scores() -> Vec<&'static Score> {
    static OUTCOMES: OnceLock<Vec<Outcome>> = OnceLock::new();
    let outcomes = OUTCOMES.get_or_init(|| evaluate().unwrap_or_else(|e| panic!("{e:#}")));
    outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Scored(score) => score.as_ref(),
            Outcome::Refused(row, error) => {
                panic!("row {} ({}, {}) is refused: {error}", row.id, row.name, row.summary())
            }
        })
        .collect()
}

/// Fails with the furthest rows when `error` of some row is above `worst`, or the median above `median`.
fn hold(what: &str, error: fn(&Score) -> f64, median: f64, worst: f64) {
    let scores = scores();
    let spread = Spread::of(scores.iter().map(|s| error(s)));
    let mut far: Vec<&&Score> = scores.iter().filter(|s| error(s).abs() > worst).collect();
    far.sort_by(|a, b| error(b).abs().total_cmp(&error(a).abs()));
    let rows: Vec<String> = far
        .iter()
        .take(20)
        .map(|s| format!("{} {:+.4} %  {}, {}", s.row.id, error(s) * 100.0, s.row.name, s.row.summary()))
        .collect();
    assert!(
        spread.median <= median && far.is_empty(),
        "{what}: median {:.4} % (at most {} %), {} rows beyond {} %:\n{}",
        spread.median * 100.0,
        median * 100.0,
        far.len(),
        worst * 100.0,
        rows.join("\n")
    );
}

#[test]
fn the_corpus_is_whole() {
    let rows = traced().unwrap();
    let ids: BTreeSet<&str> = rows.iter().map(|r| r.id.as_str()).collect();
    assert_eq!((rows.len(), ids.len()), (219, 219));
    let families: BTreeSet<&str> = rows.iter().map(|r| r.family()).collect();
    assert_eq!(
        families,
        BTreeSet::from([
            "bart", "bert", "clip", "gat", "gemma2", "gpt2", "gpt_neox", "llama", "mixtral", "mlp", "nanogpt",
            "nbeats", "opt", "qwen2", "qwen3", "resnet", "t5", "vit", "whisper"
        ])
    );
}

#[test]
fn parameter_counts_are_exact() {
    let wrong: Vec<&str> = scores().iter().filter(|s| !s.parameters_exact()).map(|s| s.row.id.as_str()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn allocated_peaks() {
    hold("allocated", Score::allocated, 0.0005, 0.005);
}

#[test]
fn reserved_peaks() {
    hold("reserved", Score::reserved, 0.01, 0.05);
}

#[test]
fn peaks_of_single_phases() {
    let mut far = Vec::new();
    for score in scores() {
        far.extend(score.unmatched_phases.iter().map(|p| format!("{}: {p}", score.row.id)));
        let beyond = score.phases.iter().filter(|p| p.error.abs() > 0.01);
        far.extend(
            beyond.map(|p| format!("{}: {} {:+.3} %  {}", score.row.id, p.name, p.error * 100.0, score.row.summary())),
        );
    }
    assert!(
        far.is_empty(),
        "{} phases beyond 1 %:\n{}",
        far.len(),
        far.iter().take(40).cloned().collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn the_breakdown_sums_to_the_peak() {
    for score in scores() {
        assert_eq!(score.estimate.at_peak.total(), score.estimate.peak.requested, "row {}", score.row.id);
    }
}

#[test]
fn the_committed_answers_are_this_builds() {
    compare(include_str!("../corpus/estimates.hashes")).unwrap();
}
