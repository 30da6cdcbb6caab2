//! `cargo xtask test`: everything that is checked, in three processes beside one another.

mod aside;
mod cpu;
mod report;
mod stages;
mod suite;
mod tally;

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::python::Python;
use crate::shell::headline;
pub use aside::Group;
use aside::{Aside, GROUPS};
use suite::Suite;
use tally::Tally;

/// What `test` was asked for.
#[derive(Debug, Default)]
pub struct Options {
    /// Leave the browser tests out.
    pub without_browser: bool,
    /// Run the stages of this group, which another such process has beside its own, and write down how they ended.
    pub aside: Option<Group>,
}

/// How one stage ended.
#[derive(Debug, PartialEq, Eq)]
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
#[derive(Debug, PartialEq, Eq)]
struct Row {
    name: &'static str,
    outcome: Outcome,
    tally: Tally,
    time: Duration,
    /// What the processors worked, where the system tells: on a busy machine `time` says little.
    cpu: Option<Duration>,
}

/// Whether it is CI that asks.
fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| matches!(value.as_str(), "true" | "1"))
}

/// Runs one stage.
fn measured(name: &'static str, stage: &mut dyn FnMut(&mut Tally) -> Result<Outcome>) -> Row {
    headline(name);
    let (start, before) = (Instant::now(), cpu::used());
    let mut tally = Tally::default();
    let outcome = stage(&mut tally).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
    if let Outcome::Failed(why) = &outcome {
        headline(&format!("{name}: FAILED: {why}"));
    }
    let cpu = cpu::used().zip(before).map(|(after, before)| after.saturating_sub(before));
    Row { name, outcome, tally, time: start.elapsed(), cpu }
}

/// Runs every stage, whatever the others do, and fails when one failed or could not run.
pub fn run(options: &Options) -> Result<ExitCode> {
    let ci = in_ci();
    ensure!(!(ci && options.without_browser), "CI=true asks for every test: --without-browser cannot be given there");
    if let Some(group) = options.aside {
        return Ok(if aside::run(group, options)? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }

    let start = Instant::now();
    let mut rows = Vec::new();
    let mut stage = |name: &'static str, run: &mut dyn FnMut(&mut Tally) -> Result<Outcome>| {
        rows.push(measured(name, run));
    };
    // Where there is no Python with PyTorch one is made, which waits for the network more than for a processor.
    let python = thread::spawn(move || Python::ready(ci));
    stage("formatting", &mut |_| stages::formatting());
    stage("advisories", &mut |_| stages::advisories());
    // All tests are built at once: apart, what they share would be built again with other features.
    let mut suite = None;
    stage("build, tests", &mut |_| {
        suite = Some(Suite::build()?);
        Ok(Outcome::Passed)
    });
    // Each group looks for one, and would make it once more.
    let _ = python.join();
    // Cargo builds one thing after another in a folder, so these wait until the tests are built.
    let beside: Vec<Aside> = GROUPS.into_iter().map(|group| Aside::start(group, options)).collect::<Result<_>>()?;
    let without_suite = || Ok(Outcome::NotRun { why: "the tests were not built".to_owned(), required: true });
    stage("tests, native", &mut |tally| {
        suite.as_ref().map_or_else(without_suite, |suite| stages::native_tests(suite, tally))
    });
    stage("accuracy", &mut |_| suite.as_ref().map_or_else(without_suite, stages::accuracy));
    stage("tests, database", &mut |tally| {
        suite.as_ref().map_or_else(without_suite, |suite| stages::database_tests(suite, ci, tally))
    });
    rows.extend(beside.into_iter().flat_map(Aside::end));

    let mut out = std::io::stdout().lock();
    report::print(&mut out, &rows, start.elapsed())?;
    Ok(if report::is_success(&rows) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
