//! Many runs for the price of one start: each is a process that is forked off after the imports.

use plimsoll_core::Scenario;
use serde_json::{Map, Value, json};

use super::{job, process, report::Report};

/// Runs a worker on a job with these commands, all of them sent at once.
pub fn run(job: &Map<String, Value>, commands: &[Value]) -> Report {
    let lines: Vec<String> =
        std::iter::once(json!(job).to_string()).chain(commands.iter().map(Value::to_string)).collect();
    process::Worker::ready(&lines.join("\n")).report()
}

/// Two steps of a scenario.
pub fn train(scenario: &Scenario) -> Report {
    let report = run(&job::job(scenario), &[job::first_attempt(scenario, 2), job::finish()]);
    report.finished();
    report
}

/// The events of a scenario that the worker does not run.
pub fn refuse(scenario: &Scenario) -> Report {
    run(&job::job(scenario), &[job::first_attempt(scenario, 1), job::finish()])
}
