//! `cargo xtask test`: everything that is checked, in the order in which it fails fastest.

mod cpu;
mod report;
mod stages;
mod suite;
mod tally;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::shell::headline;
use suite::Suite;
use tally::Tally;

/// What `test` was asked for.
#[derive(Debug, Default)]
pub struct Options {
    /// Leave the browser tests out.
    pub without_browser: bool,
}

/// How one stage ended.
#[derive(Debug)]
enum Outcome {
    Passed,
    Failed(String),
    /// Why it could not run, or was not asked to, and whether it should have.
    NotRun {
        why: String,
        required: bool,
    },
}

/// One row of the summary.
#[derive(Debug)]
struct Row {
    name: &'static str,
    outcome: Outcome,
    tally: Tally,
    time: Duration,
    /// What the processors worked, where the system tells: on a busy machine `time` says little.
    cpu: Option<Duration>,
}

/// Runs every stage, whatever the others do, and fails when one failed or could not run.
pub fn run(options: &Options) -> Result<ExitCode> {
    let ci = std::env::var("CI").is_ok_and(|value| matches!(value.as_str(), "true" | "1"));
    ensure!(!(ci && options.without_browser), "CI=true asks for every test: --without-browser cannot be given there");

    let start = Instant::now();
    let mut rows = Vec::new();
    let mut stage = |name: &'static str, run: &mut dyn FnMut(&mut Tally) -> Result<Outcome>| {
        headline(name);
        let (start, before) = (Instant::now(), cpu::used());
        let mut tally = Tally::default();
        let outcome = run(&mut tally).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        if let Outcome::Failed(why) = &outcome {
            headline(&format!("{name}: FAILED: {why}"));
        }
        let cpu = cpu::used().zip(before).map(|(after, before)| after.saturating_sub(before));
        rows.push(Row { name, outcome, tally, time: start.elapsed(), cpu });
    };
    stage("formatting", &mut |_| stages::formatting());
    stage("advisories", &mut |_| stages::advisories());
    stage("lints, native", &mut |_| stages::native_lints());
    stage("documentation", &mut |_| stages::documentation());
    // All tests are built at once: apart, what they share would be built again with other features.
    let mut suite = None;
    stage("build, tests", &mut |_| {
        suite = Some(Suite::build()?);
        Ok(Outcome::Passed)
    });
    let without_suite = || Ok(Outcome::NotRun { why: "the tests were not built".to_owned(), required: true });
    stage("tests, native", &mut |tally| {
        suite.as_ref().map_or_else(without_suite, |suite| stages::native_tests(suite, tally))
    });
    stage("accuracy", &mut |_| suite.as_ref().map_or_else(without_suite, stages::accuracy));
    stage("tests, database", &mut |tally| {
        suite.as_ref().map_or_else(without_suite, |suite| stages::database_tests(suite, ci, tally))
    });
    stage("tests, torch", &mut |tally| {
        suite.as_ref().map_or_else(without_suite, |suite| stages::torch_tests(suite, ci, tally))
    });
    stage("tests, wasm", &mut |tally| stages::wasm_tests(tally));
    stage("lints, planner", &mut |_| stages::planner_lints());
    stage("tests, browser", &mut |tally| match &suite {
        Some(suite) if options.without_browser => stages::browser_tests_left_out(suite, tally),
        Some(suite) => stages::browser_tests(suite, tally),
        None => without_suite(),
    });

    let mut out = std::io::stdout().lock();
    report::print(&mut out, &rows, start.elapsed())?;
    Ok(if report::is_success(&rows) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
