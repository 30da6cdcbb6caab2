//! Attempts: other batches, and the limit that ends one.

use std::fs;

use serde_json::{Value, json};

use super::{job, process, several};

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn an_attempt_may_ask_for_any_number_of_samples() {
    let scenario = job::mlp(json!({ "batch": 4 }), json!({ "precision": "fp16-amp", "accumulation": 2 }));
    let command = |batch: u64, accumulation: u64, samples: Option<u64>| {
        let mut command = job::attempt(batch, accumulation, 1);
        if let Some(samples) = samples {
            command["samples"] = samples.into();
        }
        command
    };
    let commands = [
        command(4, 2, None),
        command(3, 3, None),
        // Not the number the job began with, and no number that says so.
        command(3, 4, None),
        command(5, 3, Some(11)),
        command(16, 1, Some(16)),
        job::finish(),
    ];
    let report = several::run(&job::job(&scenario), &commands);
    report.finished();
    let samples: Vec<&Value> = report.all("step").iter().map(|step| &step["samples"]).collect();
    assert_eq!(samples, [8, 8, 12, 11, 16]);
    let ends = report.all("attempt_end");
    assert_eq!(ends.len(), 5);
    for (number, end) in ends.iter().enumerate() {
        assert_eq!((&end["attempt"], &end["outcome"], &end["steps"]), (&json!(number), &json!("finished"), &json!(1)));
    }
}

/// Resident memory of a process, in bytes.
#[cfg(target_os = "linux")]
fn resident(pid: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// What a limit does to a run that does not keep to it: it says so, lets go of what it held, and goes on with less:
/// a quarter, because what half of it takes at its highest comes near the limit.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn the_limit_ends_an_attempt_and_a_quarter_of_it_goes_on() {
    const MIB: u64 = 1 << 20;
    // Seven activations of 128 bytes a sample are kept for backward.
    let batch = MIB;
    let model = json!({ "family": "mlp", "d_in": 32, "hidden": 32, "layers": 8 });
    let training = json!({ "precision": "fp32", "optimizer": "sgd" });
    let scenario = job::parts(model, json!({ "batch": batch }), training);
    let mut job = job::job(&scenario);
    // What it takes before it begins: Python, PyTorch, the model.
    let mut worker = process::Worker::start(None, &json!(job).to_string());
    worker.wait_for("ready", |_| true);
    let before = resident(worker.pid());
    drop(worker);

    job.insert("limit".to_owned(), (before + 800 * MIB).into());
    let mut worker = process::Worker::start(None, &json!(job).to_string());
    worker.send(&job::attempt(batch, 1, 2).to_string());
    let guard = worker.wait_for("guard", |_| true);
    assert_eq!((&guard["kind"], &guard["phase"], &guard["step"]), (&json!("limit"), &json!("forward"), &json!(1)));
    let message = guard["message"].as_str().unwrap();
    assert!(message.contains("the limit is") && message.contains("GiB"), "{message}");
    let end = worker.wait_for("attempt_end", |_| true);
    assert_eq!((&end["outcome"], &end["steps"]), (&json!("limit"), &json!(0)));
    assert!(resident(worker.pid()) < before + 300 * MIB, "it has not let go");

    worker.send(&job::attempt(batch / 4, 4, 2).to_string());
    let step = worker.wait_for("step", |step| step["step"] == 2);
    assert_eq!((&step["samples"], &step["attempt"]), (&json!(batch), &json!(1)));
    let end = worker.wait_for("attempt_end", |_| true);
    assert_eq!((&end["outcome"], &end["steps"]), (&json!("finished"), &json!(2)));
    worker.send(&job::finish().to_string());
    assert_eq!(worker.report().finished().events.len(), 1);
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn after_an_attempt_that_does_not_fit_at_all_a_smaller_one_runs() {
    let model = json!({ "family": "mlp", "d_in": 1 << 20, "hidden": 8, "layers": 2 });
    let scenario = job::parts(model, json!({ "batch": 4 }), json!({ "precision": "fp16-amp" }));
    // More bytes than an address can name.
    let whole = job::attempt(1 << 28, 1, 1);
    let commands = [job::attempt(4, 1, 1), whole, job::attempt(4, 1, 2), job::finish()];
    let report = several::run(&job::job(&scenario), &commands);
    report.finished();
    let guard = report.one("guard");
    let told = ["kind", "phase", "step", "micro_batch", "attempt"].map(|key| guard[key].clone());
    assert_eq!(told, [json!("out_of_memory"), json!("input"), json!(1), json!(1), json!(1)]);
    assert!(guard["message"].as_str().unwrap().contains("can't allocate memory"), "{guard}");
    let outcomes: Vec<&Value> = report.all("attempt_end").iter().map(|end| &end["outcome"]).collect();
    assert_eq!(outcomes, ["finished", "out_of_memory", "finished"]);
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn a_limit_below_the_model_is_told_before_the_first_step() {
    let scenario = job::mlp(json!({ "batch": 4 }), json!({}));
    let mut job = job::job(&scenario);
    job["limit"] = (1 << 20).into();
    let report = several::run(&job, &[job::first_attempt(&scenario, 1)]);
    let (message, hint) = report.refused("out-of-memory");
    assert!(message.contains("the limit is too low for the model's weights") && hint.contains("smaller"), "{message}");
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn a_trace_is_written_whole_or_not_at_all() {
    let scenario = job::mlp(json!({ "batch": 4 }), json!({}));
    let directory = process::directory("trace", &[]);
    let mut job = job::job(&scenario);
    job["trace"] = directory.join("step.json").to_str().into();
    let report = several::run(&job, &[job::first_attempt(&scenario, 2), job::finish()]);
    report.finished();
    // The step under the profiler is none of those that are measured.
    assert_eq!(report.all("step").len(), 2);
    let trace: Value = serde_json::from_slice(&fs::read(directory.join("step.json")).unwrap()).unwrap();
    let ops = trace["traceEvents"].as_array().unwrap();
    assert!(ops.iter().any(|op| op["name"] == "aten::addmm"), "{} ops", ops.len());
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "it left something beside the trace");

    job["trace"] = Value::Null;
    job["snapshot"] = directory.join("memory.pickle").to_str().into();
    let report = several::run(&job, &[job::first_attempt(&scenario, 2), job::finish()]);
    assert!(report.refused("unsupported").0.contains("on CUDA only"));
}
