//! Many runs for the price of one start: `several.py` forks a worker off after the imports.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Stdio},
    sync::Mutex,
};

use plimsoll_core::Scenario;
use serde_json::{Map, Value, json};

use super::{job, process, report::Report};

/// Python with everything imported.
struct Several {
    child: Child,
    answers: BufReader<ChildStdout>,
}

/// Those that nobody is using. They end when their standard input is closed: with the tests.
static IDLE: Mutex<Vec<Several>> = Mutex::new(Vec::new());

impl Several {
    fn start() -> Self {
        let mut python = process::python();
        python.arg(process::file("tests/worker/several.py")).arg(process::script());
        let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn run(&mut self, lines: &[String]) -> Report {
        writeln!(self.child.stdin.as_mut().unwrap(), "{}", json!(lines)).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
        let lines = answer["lines"].as_array().unwrap();
        let stderr = answer["stderr"].as_str().unwrap().to_owned();
        Report::new(lines.iter().filter_map(Value::as_str), stderr, answer["code"].as_i64().unwrap())
    }
}

/// Runs a worker on a job with these commands, all of them sent at once.
pub fn run(job: &Map<String, Value>, commands: &[Value]) -> Report {
    let lines: Vec<String> =
        std::iter::once(json!(job).to_string()).chain(commands.iter().map(Value::to_string)).collect();
    let idle = IDLE.lock().unwrap().pop();
    let mut several = idle.unwrap_or_else(Several::start);
    let report = several.run(&lines);
    IDLE.lock().unwrap().push(several);
    report
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
