//! `cargo xtask test`: everything that is checked, in the order in which it fails fastest.

mod report;
mod stages;
mod tally;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::{shell::headline, tools::Tools};
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
}

/// Runs every stage, whatever the others do, and fails when one failed or could not run.
pub fn run(options: &Options) -> Result<ExitCode> {
    let ci = std::env::var("CI").is_ok_and(|value| matches!(value.as_str(), "true" | "1"));
    ensure!(!(ci && options.without_browser), "CI=true asks for every test: --without-browser cannot be given there");

    let start = Instant::now();
    let mut rows = Vec::new();
    let mut stage = |name: &'static str, run: &mut dyn FnMut(&mut Tally) -> Result<Outcome>| {
        headline(name);
        let start = Instant::now();
        let mut tally = Tally::default();
        let outcome = run(&mut tally).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        if let Outcome::Failed(why) = &outcome {
            headline(&format!("{name}: FAILED: {why}"));
        }
        rows.push(Row { name, outcome, tally, time: start.elapsed() });
    };
    stage("formatting", &mut |_| stages::formatting());
    stage("dependencies", &mut |_| stages::dependencies());
    stage("lints, native", &mut |_| stages::native_lints());
    stage("tests, native", &mut stages::native_tests);
    stage("accuracy", &mut |_| stages::accuracy());
    stage("tests, database", &mut |tally| stages::database_tests(ci, tally));
    stage("tests, torch", &mut |tally| stages::torch_tests(ci, tally));
    // From here on tools are needed that may have to be built first.
    let mut tools = None;
    stage("tools", &mut |_| {
        tools = Some(Tools::ready()?);
        Ok(Outcome::Passed)
    });
    stage("lints, planner", &mut |_| stages::planner_lints());
    let without_tools = || Ok(Outcome::NotRun { why: "the tools it needs are missing".to_owned(), required: true });
    stage("tests, wasm", &mut |tally| {
        tools.as_ref().map_or_else(without_tools, |tools| stages::wasm_tests(tools, tally))
    });
    stage("tests, browser", &mut |tally| match &tools {
        _ if options.without_browser => stages::browser_tests_left_out(tally),
        Some(tools) => stages::browser_tests(tools, tally),
        None => without_tools(),
    });

    let mut out = std::io::stdout().lock();
    report::print(&mut out, &rows, start.elapsed())?;
    Ok(if report::is_success(&rows) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
