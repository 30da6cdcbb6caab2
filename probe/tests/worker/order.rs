//! The loop runs its phases in the order and number in which the estimate counts them.

use plimsoll_core::{Scenario, estimate::Run};
use serde_json::{Value, json};

use super::{job, several};

/// Name, step and micro-batch of each phase.
fn phases<'v>(list: impl IntoIterator<Item = &'v Value>) -> Vec<String> {
    list.into_iter().map(|p| format!("{} {} {}", p["name"], p["step"], p["micro_batch"])).collect()
}

fn same_order(scenario: &Scenario) {
    let estimated = json!(Run::new(scenario).unwrap().into_estimate());
    let estimated = phases(estimated["phases"].as_array().unwrap());
    let report = several::train(scenario);
    let measured = report.all("phase");
    assert_eq!(phases(measured.iter().copied()), estimated, "{}", scenario.to_value());
    // The CPU keeps no count of its memory.
    assert!(measured.iter().all(|p| p["peak_allocated"].is_null() && p["micros"].is_u64() && p["attempt"] == 0));
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn phases_come_as_the_estimate_counts_them() {
    for training in [
        json!({ "precision": "fp32" }),
        json!({ "precision": "fp32", "accumulation": 3, "clip_grad_norm": false }),
        json!({ "precision": "fp16-amp", "accumulation": 2, "zero_grad": "zero" }),
        json!({ "precision": "bf16-amp", "accumulation": 2, "zero_grad_at": "before-backward", "keep_outputs": true }),
        json!({ "precision": "bf16", "optimizer": "sgd", "zero_grad_at": "before-backward", "zero_grad": "zero" }),
    ] {
        same_order(&job::mlp(json!({ "batch": 4 }), training));
    }
    same_order(&job::llama(json!({ "batch": 2, "seq": 16 }), json!({ "checkpointing": "full", "accumulation": 2 })));
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn without_phases_only_steps_are_told() {
    let scenario = job::mlp(json!({ "batch": 4 }), json!({ "accumulation": 2 }));
    let mut job = job::job(&scenario);
    job["phases"] = false.into();
    let report = several::run(&job, &[job::first_attempt(&scenario, 3), job::finish()]);
    report.finished();
    assert!(report.all("phase").is_empty());
    let samples: Vec<&Value> = report.all("step").iter().map(|step| &step["samples"]).collect();
    assert_eq!(samples, [8, 8, 8]);
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn events_come_in_their_order() {
    let report = several::train(&job::llama(json!({ "batch": 2, "seq": 16 }), json!({})));
    let mut kinds: Vec<&str> = report.events.iter().filter_map(|event| event["event"].as_str()).collect();
    kinds.dedup();
    let expected =
        ["progress", "hello", "progress", "phase", "ready", "phase", "step", "phase", "step", "attempt_end", "bye"];
    assert_eq!(kinds, expected);
    let hello = report.one("hello");
    assert_eq!((&hello["protocol"], &hello["device"]["kind"]), (&json!(1), &json!("cpu")));
    assert!(hello["device"]["total"].as_u64() > Some(1 << 28), "{hello}");
    for (package, used) in
        [("torch", true), ("transformers", true), ("peft", false), ("torchvision", false), ("bitsandbytes", false)]
    {
        assert_eq!(hello[package].is_string(), used, "{package}: {hello}");
    }
    let end = report.one("attempt_end");
    assert_eq!((&end["outcome"], &end["steps"], &end["attempt"]), (&json!("finished"), &json!(2), &json!(0)));
}
