//! What a record says, and where it is kept.

use std::fs;

use serde_json::Value;

use super::stub::{Ran, Stub};
use super::{attempts, kinds};

#[test]
fn a_fine_run() {
    let Ran { code, record, stdout, stderr } = Stub::new("fine").json();
    assert_eq!(code, Some(0), "{stderr}");
    let record = record.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap(), record, "standard output and the file say the same");
    assert_eq!(attempts(&record), [(8, 2, "finished", 3)]);
    assert_eq!(record["steps"].as_array().unwrap().len(), 3);
    // Load, and of the first and the last step: input, forward, backward twice, clip, optimizer, zero_grad.
    assert_eq!(record["phases"].as_array().unwrap().len(), 1 + 2 * 9);
    assert_eq!(record["speed"]["step_micros"], 2000);
    assert_eq!(record["speed"]["samples_per_second"], 8000.0);
    assert_eq!(record["parameters"]["total"], 1000);
    assert_eq!(record["scenario"]["model"]["family"], "mlp");
    assert_eq!(record["estimate"]["scenario"]["model"]["family"], "mlp");
    assert!(kinds(&record).is_empty(), "{record}");
    assert!(!stderr.contains('\u{1b}'), "no colours or cursor movement into a pipe: {stderr:?}");
    for part in ["Measuring on the processor", "importing PyTorch", "micro-batch 8 x 2, 3 steps", "step 3 of 3: 2.0 ms"]
    {
        assert!(stderr.contains(part), "no {part:?} in {stderr}");
    }
}

#[test]
fn a_record_reads_as_one() {
    for mode in ["fine", "oom", "oom-all", "nan", "sigkill", "crash", "load-oom", "missing-package", "garbage"] {
        let record = Stub::new(mode).json().record.unwrap();
        let text = record.to_string();
        let read = serde_json::from_value::<plimsoll_core::Measurement>(record);
        let problems = read.unwrap_or_else(|error| panic!("{mode}: {error}")).validate();
        assert!(problems.is_empty(), "{mode}: {problems:?}");
        for private in ["/tmp", "/home", "/root", env!("CARGO_MANIFEST_DIR")] {
            assert!(!text.contains(private), "{mode}: {private} in {text}");
        }
    }
}

#[test]
fn of_a_worker_that_failed_before_its_first_step_nothing_is_kept() {
    let running = Stub::new("missing-package").start();
    let kept = running.kept();
    let (_, ran) = running.end();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(!kept.exists() && !ran.stderr.contains("Kept as"), "{}", ran.stderr);
}

#[test]
fn a_record_is_kept_on_the_machine() {
    let running = Stub::new("fine").start();
    let kept = running.kept();
    let (_, ran) = running.end();
    let files: Vec<_> = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(serde_json::from_str::<Value>(&fs::read_to_string(&files[0]).unwrap()).unwrap(), ran.record.unwrap());
    assert!(ran.stderr.contains(&files[0].display().to_string()), "{}", ran.stderr);
}

#[test]
fn a_family_without_an_estimate_is_measured_all_the_same() {
    let scenario = r#"{"model": {"hf": {"model_type": "perceiver"}, "task": "masked-lm"}, "input": {"batch": 8},
        "training": {"accumulation": 2}}"#;
    let ran = Stub::new("fine").scenario(scenario).text();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("MEASURED"), "{}", ran.stdout);
    assert!(ran.stdout.contains("No prediction: "), "{}", ran.stdout);
    let record = Stub::new("fine").scenario(scenario).json().record.unwrap();
    assert!(record["estimate"].is_null());
}
