//! Records of real cards on the scoreboard. The records are the example on a card it was not taken on: what is tested
//! is the reading and the page, not how good the estimate is.
#![cfg(not(target_arch = "wasm32"))]

use std::fs;
use std::path::Path;

use plimsoll_core::measurement::EXAMPLE;
use plimsoll_tests::accuracy::{CardOutcome, cards, real_cards, report};
use serde_json::{Value, json};

const CARD: &str = "rtx-5070-ti-laptop";

/// The example as if it had been taken on `card`, changed.
fn record(card: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut record: Value = serde_json::from_str(EXAMPLE).unwrap_or_else(|e| panic!("the example: {e}"));
    record["device"]["gpu"] = json!(card);
    change(&mut record);
    record
}

fn put(directory: &Path, card: &str, name: &str, record: &Value) {
    let folder = directory.join(card);
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join(name), record.to_string()));
    written.unwrap_or_else(|e| panic!("cannot write {name}: {e}"));
}

fn refused(directory: &Path) -> String {
    match cards(directory) {
        Ok(rows) => panic!("{} records were taken", rows.len()),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn without_records_the_page_says_how_to_add_some() {
    let directory = tempfile::tempdir().unwrap();
    for place in [directory.path().to_owned(), directory.path().join("not there")] {
        let rows = cards(&place).unwrap();
        assert!(rows.is_empty());
        let text = real_cards(&rows);
        assert!(text.contains("no records of real cards yet") && text.contains("plimsoll probe suite"), "{text}");
    }
    let page = report(&[], &(Vec::new(), Vec::new()), &[]).unwrap();
    assert!(page.ends_with(&real_cards(&[])), "{page}");
}

#[test]
fn records_are_compared_with_a_fresh_estimate() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), CARD, "b.json", &record(CARD, |_| ()));
    // The recorded estimate does not count.
    put(directory.path(), CARD, "a.json", &record(CARD, |r| r["estimate"]["peak"]["allocated"] = json!(1)));
    put(directory.path(), "rtx-5070-ti", "c.json", &record("rtx-5070-ti", |_| ()));
    fs::write(directory.path().join("README.md"), "not a record").unwrap();
    fs::write(directory.path().join(CARD).join("notes.txt"), "not a record").unwrap();
    let rows = cards(directory.path()).unwrap();
    let names: Vec<(&str, &str)> = rows.iter().map(|r| (r.card.as_str(), r.name.as_str())).collect();
    assert_eq!(names, [("rtx-5070-ti", "c"), (CARD, "a"), (CARD, "b")]);
    // The micro-batch that finished is the one that is estimated.
    assert!(rows[1].recipe().summary().starts_with("batch 8 x 512, fp16-amp"), "{}", rows[1].recipe().summary());
    let (a, b) = (rows[1].errors().unwrap(), rows[2].errors().unwrap());
    assert_eq!(a, b);
    assert!(a.allocated.is_some_and(|e| e.abs() < 0.02), "the example is made from an estimate: {a:?}");
    let text = real_cards(&rows);
    for line in [
        "| card | peak | records | median | 95th percentile | worst |",
        "| `rtx-5070-ti-laptop` | allocated | 2 |",
        "| `rtx-5070-ti` | process | 1 |",
        "| all cards | reserved | 3 |",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_row_beyond_one_percent_is_listed() {
    let directory = tempfile::tempdir().unwrap();
    let more = |r: &mut Value| {
        r["peak"]["process"] = json!(r["peak"]["process"].as_u64().unwrap() + (1 << 30));
    };
    put(directory.path(), CARD, "far.json", &record(CARD, more));
    let rows = cards(directory.path()).unwrap();
    assert!(rows[0].errors().unwrap().process.unwrap() < -0.01);
    let text = real_cards(&rows);
    assert!(text.contains("Records beyond 1.00 %:"), "{text}");
    assert!(text.contains("| `rtx-5070-ti-laptop` | `far` | gpt2 | batch 8 x 512, fp16-amp, adamw foreach,"), "{text}");
}

#[test]
fn what_cannot_be_compared_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let unfinished = |r: &mut Value| {
        r["attempts"].as_array_mut().unwrap().truncate(1);
        r["phases"].as_array_mut().unwrap().retain(|p| p["attempt"] == 0);
        (r["steps"], r["speed"]) = (json!([]), json!(null));
    };
    put(directory.path(), CARD, "short.json", &record(CARD, unfinished));
    let unknown = |r: &mut Value| {
        r["scenario"]["model"] = json!({ "hf": { "model_type": "perceiver" }, "task": "masked-lm" });
        r["estimate"] = json!(null);
    };
    put(directory.path(), CARD, "unknown.json", &record(CARD, unknown));
    let rows = cards(directory.path()).unwrap();
    assert!(matches!(rows[0].outcome, CardOutcome::Unfinished));
    assert!(matches!(rows[1].outcome, CardOutcome::Refused(_)));
    let text = real_cards(&rows);
    assert!(text.contains("- `rtx-5070-ti-laptop/short` (batch 16 x 512"), "{text}");
    assert!(text.contains("the run did not finish"), "{text}");
    assert!(text.contains("does not estimate the model_type \"perceiver\""), "{text}");
    assert!(text.contains("| `rtx-5070-ti-laptop` | allocated | 0 | - | - | - |"), "{text}");
}

#[test]
fn a_record_that_is_not_valid_fails() {
    let directory = tempfile::tempdir().unwrap();
    let wrong = record(CARD, |r| {
        r["peak"]["allocated"] = json!(1);
        r["events"][0]["message"] = json!("in /home/ada/run.py");
    });
    put(directory.path(), CARD, "wrong.json", &wrong);
    let message = refused(directory.path());
    for part in ["wrong.json", "peak.allocated: ", "events[0].message: a path is in it"] {
        assert!(message.contains(part), "{message}");
    }

    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "h200", "moved.json", &record(CARD, |_| ()));
    assert!(refused(directory.path()).contains("lies in the folder h200"));

    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("loose.json"), EXAMPLE).unwrap();
    assert!(refused(directory.path()).contains("belongs in the folder of its card"));

    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), CARD, "half.json", &json!({ "schema": 1 }));
    assert!(refused(directory.path()).contains("missing field"));
}
