//! What strangers hand to Plimsoll, and what must hold whatever they hand: nothing panics, and what was read can be written and
//! read again.
//!
//! `fuzz_targets` has a program for each of these functions. Under `cargo fuzz` libFuzzer makes up their inputs; built with a
//! stable compiler the same programs, and the tests of this crate, change what lies in `corpus` in a fixed sequence.
#![forbid(unsafe_code)]

pub mod chance;
pub mod change;
pub mod count;
pub mod harness;
mod seen;
pub mod watch;

use change::Grammar;
use plimsoll_core::estimate::{Reading, Run, estimate};
use plimsoll_core::ledger::Ledger;
use plimsoll_core::ledger::hull::Hull;
use plimsoll_core::measurement::Known;
use plimsoll_core::scenario::{HullModel, Link};
use plimsoll_core::snapshot::{Course, Snapshot, Summary};
use plimsoll_core::{Bytes, Measurement, Scenario};
use serde_json::{Value, json};

/// Something that reads what strangers hand over.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called: its program, and its folder in the corpus.
    pub name: &'static str,
    /// What it reads.
    pub grammar: Grammar,
    /// Its part of a hundred hostile inputs.
    pub share: u64,
    /// Reads an input.
    pub run: fn(&[u8]),
}

/// All of them.
pub static TARGETS: [Target; 8] = [
    Target { name: "scenario", grammar: Grammar::Scenario, share: 40, run: scenario },
    Target { name: "link", grammar: Grammar::Link, share: 8, run: link },
    Target { name: "config", grammar: Grammar::Json, share: 3, run: config },
    Target { name: "record", grammar: Grammar::Json, share: 42, run: record },
    Target { name: "ledger", grammar: Grammar::Json, share: 2, run: ledger },
    Target { name: "hull", grammar: Grammar::Json, share: 2, run: hull },
    Target { name: "packed", grammar: Grammar::Bytes, share: 1, run: packed },
    Target { name: "snapshot", grammar: Grammar::Bytes, share: 2, run: snapshot },
];

/// The target of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// A share link. Whatever is in it, a scenario comes out, and its own link leads back to it.
pub fn link(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let scenario = Link::decode(&text).scenario;
    let own = Link::encode(&scenario);
    assert_eq!(Link::decode_strict(&own).as_ref(), Ok(&scenario));
    // A link is seldom without a model of full size. Which are estimated their texts say, and nothing of what that costs.
    if seen::first(&own).is_some_and(|mark| mark % OF_LINKS == 0) {
        estimated(&scenario);
    }
    if let Some(Ok(record)) = Measurement::in_link(&text) {
        take(&record);
    }
}

/// The text of a scenario. What was read is written as JSON and as TOML, and both are read as the same.
pub fn scenario(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for read in [Scenario::from_json(&text), Scenario::from_toml(&text)] {
        let Ok(scenario) = read else { continue };
        assert_eq!(Scenario::from_value(&scenario.to_value()).as_ref(), Ok(&scenario));
        assert_eq!(Scenario::from_toml(&scenario.to_toml()).as_ref(), Ok(&scenario));
        estimated(&scenario);
    }
}

/// What a page or a terminal does with a scenario once it is read: it is estimated or refused, and of some the largest batch is
/// searched too, as of all that a person asks for.
fn estimated(scenario: &Scenario) {
    // Most links that differ say the same.
    let Some(mark) = seen::first(&scenario.to_value().to_string()) else { return };
    // An estimate that is refused says why, and that is all that is asked of it.
    if mark % SEARCHED == 0 {
        let _ = estimate(scenario);
    } else {
        let _ = Run::new(scenario);
    }
}

/// Of so many links that say something new one is estimated.
const OF_LINKS: u64 = 4;

/// Of so many scenarios one has its largest batch searched, which takes some runs more.
const SEARCHED: u64 = 64;

/// A `config.json`. It is estimated or refused.
pub fn config(input: &[u8]) {
    let Ok(config) = serde_json::from_slice::<Value>(input) else { return };
    let asked = json!({ "model": { "hf": config }, "input": { "batch": 1, "seq": 8 } });
    if let Ok(scenario) = Scenario::from_value(&asked) {
        estimated(&scenario);
    }
}

/// The text of a ledger: what is read of it is written and read again, and summed up.
pub fn ledger(input: &[u8]) {
    let Ok(ledger) = Ledger::from_text(&String::from_utf8_lossy(input)) else { return };
    let again = ledger.to_text().and_then(|text| Ledger::from_text(&text));
    assert_eq!(again.as_ref(), Ok(&ledger));
    let reading = Reading::new(ledger);
    assert_eq!(reading.summary().at_peak.total(), reading.summary().peak.requested);
    assert_eq!(reading.heights(8).len(), 8);
}

/// The JSON within a hull. What is read is played at other sizes: it is estimated or refused.
pub fn hull(input: &[u8]) {
    let Ok(mut hull) = Hull::from_text(input) else { return };
    let again = hull.to_bytes().and_then(|bytes| Hull::from_bytes(&bytes));
    // What has changed seldom comes out as its witnesses say; without them more of it is played.
    hull.tapes.iter_mut().for_each(|tape| tape.witnesses.clear());
    let Ok(bytes) = hull.to_bytes() else { return };
    if let Ok(again) = again {
        assert_eq!(again.axes, hull.axes);
    }
    let content = HullModel::content(&bytes);
    let ways = [(1u64, "fp32", "none"), (1 << 40, "fp32", "none"), (7, "fp16-amp", "none"), (3, "fp32", "full")];
    for (batch, precision, checkpointing) in ways {
        let training = json!({ "precision": precision, "accumulation": 2, "checkpointing": checkpointing });
        let asked = json!({ "model": { "hull": content }, "input": { "batch": batch }, "training": training });
        if let Ok(scenario) = Scenario::from_value(&asked) {
            // A run that is refused says why, and that is all that is asked of it.
            let _ = Run::new(&scenario);
        }
    }
}

/// A whole hull's bytes, packed either way. What is read is written and read again.
pub fn packed(input: &[u8]) {
    let Ok(hull) = Hull::from_bytes(input) else { return };
    let again = hull.to_bytes().and_then(|bytes| Hull::from_bytes(&bytes));
    assert_eq!(again.as_ref(), Ok(&hull));
}

/// A memory snapshot's bytes. What is read of it is followed and summed up.
pub fn snapshot(input: &[u8]) {
    let Ok(snapshot) = Snapshot::read(input) else { return };
    for device in &snapshot.devices {
        let course = Course::of(device);
        assert_eq!((course.live.len(), course.reserved.len()), (device.trace.len() + 1, device.trace.len() + 1));
        let summary = Summary::of(&snapshot, device, &course);
        assert_eq!(course.heights(8).into_iter().max(), Some(summary.peak));
        assert_eq!(summary.holdings.iter().map(|held| held.bytes).sum::<Bytes>(), summary.peak);
        assert!(course.column(course.peak(), 8) < 8);
    }
}

/// The text of a record.
pub fn record(input: &[u8]) {
    if let Ok(record) = Measurement::from_json(&String::from_utf8_lossy(input)) {
        take(&record);
    }
}

/// All that is done with a record before it is kept.
fn take(record: &Measurement) {
    let mut scrubbed = record.clone();
    scrubbed.scrub(&Known::default());
    if record.validate().is_empty() {
        let again = Measurement::from_json(&record.canonical());
        assert_eq!(again.map(|again| again.canonical()), Ok(record.canonical()));
        // A scenario that the engine refuses makes no point.
        let _ = record.point();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hostile inputs of all targets together: less than a minute of one processor.
    const INPUTS: u64 = 24_000;

    /// What the inputs are made with. `hostile --seed 1` goes on where this ends.
    const SEED: u64 = 1;

    #[test]
    fn good_inputs_hold() {
        let _alone = watch::tests::alone();
        for target in &TARGETS {
            assert!(harness::run(target, 0).unwrap() > 0, "{}", target.name);
        }
    }

    #[test]
    fn hostile_inputs_neither_panic_nor_hang_nor_take_all_memory() {
        let _alone = watch::tests::alone();
        for target in &TARGETS {
            let mut counter = count::Counter::new(target, SEED, 0, &harness::kept()).unwrap();
            counter.run(INPUTS * target.share / 100);
            println!("{}: {}", target.name, counter.tally());
            assert!(counter.tally().is_clean(), "{}: {}", target.name, counter.tally());
        }
    }
}
