//! Which card is measured on, how busy it is, and how much of it is used.

use serde_json::Value;

use super::stub::Stub;
use super::{attempts, kinds, message};

#[test]
fn a_device_that_was_asked_for_must_be_there() {
    let ran = Stub::new("no-device").device("cuda").json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: use --device cpu"), "{}", ran.stderr);
}

#[test]
fn the_card_is_found_and_sampled() {
    let ran = Stub::new("fine").card(500).with(&["--steps", "6"]).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    let device = &record["device"];
    assert_eq!((&device["kind"], &device["gpu"]), (&Value::from("cuda"), &Value::from("rx-7900-xtx")));
    assert_eq!(device["used_before"], 500_u64 << 20);
    assert_eq!(record["peak"]["process_source"], "amdgpu_difference");
    assert_eq!(record["peak"]["process"], 364_u64 << 20, "300 MiB and 8 for each sample, without what others hold");
    assert_eq!(record["utilization"]["mean"], 40);
    assert_eq!(record["estimate"]["scenario"]["device"]["gpu"], "rx-7900-xtx");
    assert_eq!(record["estimate"]["scenario"]["device"]["memory"], "24060 MiB", "less what others hold");
    assert!(record["samples"].as_array().unwrap().len() >= 2);
    assert!(!record.to_string().contains("0000:03:00.0"), "what tells this card from others is not kept");
}

#[test]
fn an_idle_card_gets_larger_micro_batches() {
    let ran = Stub::new("fine").card(500).with(&["--steps", "6", "--target-utilization", "85"]).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    assert_eq!(attempts(&record), [(8, 2, "finished", 6), (16, 1, "finished", 6), (32, 1, "finished", 6)]);
    assert_eq!(kinds(&record), ["raised", "raised"]);
    assert!(!message(&record, "raised").contains("grows"), "two micro-batches become one");
    assert!(record["events"][1]["message"].as_str().unwrap().contains("grows from 16 to 32"));
    assert_eq!(record["peak"]["process"], (300 + 8 * 32) << 20, "of the last attempt");

    // There, nine tenths are left for nobody: 300 MiB and more of 400.
    let ran = Stub::new("fine").card(500).with(&["--limit", "400MiB", "--target-utilization", "85"]).json();
    let record = ran.record.unwrap();
    assert_eq!(attempts(&record).len(), 1);
    assert!(record.to_string().contains("too near to the end of the memory"), "{record}");
}

#[test]
fn a_busy_card() {
    let gib = |n: u64| n << 10;
    let ran = Stub::new("fine").card(gib(8)).json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("others hold 8.00 GiB of the card's 23.98 GiB (33 %)"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--busy warn"), "{}", ran.stderr);
    assert!(ran.record.is_none());
    let record = Stub::new("fine").card(gib(8)).with(&["--busy", "warn"]).json().record.unwrap();
    assert_eq!(kinds(&record), ["warning"]);
    let record = Stub::new("fine").card(gib(8)).with(&["--busy", "ignore"]).json().record.unwrap();
    assert!(kinds(&record).is_empty());
    let record = Stub::new("fine").card(gib(2)).json().record.unwrap();
    assert_eq!(kinds(&record), ["warning"], "a twentieth is told of");
    let record = Stub::new("fine").card(gib(1)).json().record.unwrap();
    assert!(kinds(&record).is_empty());
}

#[test]
fn a_card_that_pytorch_does_not_see_is_left_alone_unless_asked_for() {
    let ran = Stub::new("no-device").card(500).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    assert_eq!(record["device"]["kind"], "cpu");
    assert!(message(&record, "note").contains("PyTorch sees no CUDA device"));
    // A number asks for a card.
    let ran = Stub::new("no-device").card(500).with(&["--index", "0"]).json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("PyTorch sees no CUDA device"), "{}", ran.stderr);
}

#[test]
fn a_card_that_nobody_has_is_refused_before_anything_is_started() {
    let ran = Stub::new("fine").card(500).with(&["--index", "5"]).json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("there is no card 5: 1 can be seen"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("Measuring"), "{}", ran.stderr);
}

#[test]
fn utilisation_that_nothing_tells_raises_nothing() {
    let ran = Stub::new("fine").with(&["--target-utilization", "85"]).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    assert_eq!(attempts(&record).len(), 1);
    assert!(message(&record, "note").contains("nothing tells how much the device is used"));
}
