//! What each stage runs.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Outcome, Tally};
use crate::{
    browser::Browser,
    serve,
    shell::{self, note},
    tools::{self, Tools, WASM_TARGET},
    workspace,
};

/// The planner: what of it needs no browser is built and tested natively too, the page only for wasm32.
const PLANNER: &str = "plimsoll-web";

/// The package of the end-to-end tests, and its test target that needs a browser.
const END_TO_END: (&str, &str) = ("plimsoll-tests", "e2e");

/// The test targets that run as WebAssembly, under Node: the engine must give the same bytes there.
const WASM_TESTED: [(&str, &str); 1] = [("plimsoll-tests", "wasm_parity")];

/// What the wasm test runner needs.
const NO_NODE: &str = "Node.js is not installed, and the WebAssembly tests run in it: install it (https://nodejs.org)";

pub fn formatting() -> Result<Outcome> {
    shell::run(shell::cargo().args(["fmt", "--all", "--check"]))?;
    Ok(Outcome::Passed)
}

pub fn native_lints() -> Result<Outcome> {
    let mut clippy = shell::cargo();
    clippy.args(["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    shell::run(&mut clippy)?;
    Ok(Outcome::Passed)
}

pub fn planner_lints() -> Result<Outcome> {
    let mut clippy = shell::cargo();
    clippy.args(["clippy", "--locked", "--package", PLANNER, "--target", WASM_TARGET, "--", "-D", "warnings"]);
    shell::run(&mut clippy)?;
    Ok(Outcome::Passed)
}

/// Everything but the browser tests.
pub fn native_tests(tally: &mut Tally) -> Result<Outcome> {
    let (package, browser_target) = END_TO_END;
    let mut all = shell::cargo();
    all.args(["test", "--locked", "--workspace", "--exclude", package, "--no-fail-fast"]);
    let first = shell::run_watched(&mut all, |line| tally.see(line));

    let mut rest = shell::cargo();
    rest.args(["test", "--locked", "--package", package, "--no-fail-fast", "--lib"]);
    for target in test_targets(package)?.iter().filter(|target| *target != browser_target) {
        rest.args(["--test", target]);
    }
    let second = shell::run_watched(&mut rest, |line| tally.see(line));
    first.and(second)?;
    ran(*tally)
}

pub fn wasm_tests(tools: &Tools, tally: &mut Tally) -> Result<Outcome> {
    if shell::output(Command::new("node").arg("--version")).is_none() {
        return Ok(Outcome::NotRun { why: NO_NODE.to_owned(), required: true });
    }
    for (package, target) in WASM_TESTED {
        let mut test = shell::cargo();
        test.args(["test", "--locked", "--package", package, "--target", WASM_TARGET, "--test", target])
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER", tools.wasm_test_runner());
        shell::run_watched(&mut test, |line| tally.see(line))?;
    }
    ran(*tally)
}

pub fn accuracy() -> Result<Outcome> {
    let this = std::env::current_exe().context("cannot find this program")?;
    for command in ["accuracy", "schema"] {
        shell::run(Command::new(&this).current_dir(workspace::root()).args([command, "--check"]))?;
    }
    Ok(Outcome::Passed)
}

/// The browser tests were not asked for. They are built and counted all the same: they must still compile.
pub fn browser_tests_left_out(tally: &mut Tally) -> Result<Outcome> {
    tally.skipped = browser_tests_count()?;
    Ok(Outcome::NotRun { why: "--without-browser was given".to_owned(), required: false })
}

fn browser_tests_count() -> Result<u64> {
    let list = shell::output(browser_test_command()?.args(["--", "--list"]));
    let list = list.context("the browser tests do not compile")?;
    Ok(list.lines().filter(|line| line.ends_with(": test")).count().try_into()?)
}

fn browser_test_command() -> Result<Command> {
    let (package, target) = END_TO_END;
    ensure!(test_targets(package)?.iter().any(|t| t == target), "{package} has no test target `{target}`");
    let mut test = shell::cargo();
    test.args(["test", "--locked", "--package", package, "--test", target]);
    Ok(test)
}

/// The journeys a person takes, in a real browser through the real server. The tests learn from the environment what
/// to run: `PLIMSOLL` (the binary), `CHROME`, `CHROMEDRIVER`, `AXE` (the accessibility checker's script).
pub fn browser_tests(tools: &Tools, tally: &mut Tally) -> Result<Outcome> {
    let mut test = browser_test_command()?;
    let found = Browser::ready().and_then(|browser| Ok((browser, tools::axe()?)));
    let (browser, axe) = match found {
        Ok(found) => found,
        Err(error) => {
            tally.skipped = browser_tests_count()?;
            return Ok(Outcome::NotRun { why: format!("{error:#}"), required: true });
        }
    };
    note(&format!("in {} ({})", browser.version, browser.chrome.display()));
    let plimsoll = serve::binary(tools)?;
    test.env("PLIMSOLL", plimsoll).env("CHROME", browser.chrome).env("CHROMEDRIVER", browser.driver).env("AXE", axe);
    shell::run_watched(&mut test, |line| tally.see(line))?;
    ran(*tally)
}

/// A stage of tests that ran none has shown nothing.
fn ran(tally: Tally) -> Result<Outcome> {
    ensure!(tally.ran(), "no test ran");
    Ok(Outcome::Passed)
}

/// The names of a package's integration test targets.
fn test_targets(package: &str) -> Result<Vec<String>> {
    let metadata = workspace::metadata()?;
    let packages = metadata.get("packages").and_then(Value::as_array).context("no packages in `cargo metadata`")?;
    let found = packages.iter().find(|p| p.get("name").and_then(Value::as_str) == Some(package));
    let targets = found.and_then(|p| p.get("targets")).and_then(Value::as_array);
    let targets = targets.with_context(|| format!("the workspace has no package `{package}`"))?;
    let is_test = |t: &&Value| t.get("kind").and_then(Value::as_array).is_some_and(|k| k.iter().any(|k| k == "test"));
    Ok(targets.iter().filter(is_test).filter_map(|t| t.get("name")?.as_str().map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_targets_come_from_cargo() {
        assert_eq!(test_targets("plimsoll-server").unwrap(), ["app", "socket"]);
        assert!(test_targets("no-such-package").is_err());
    }

    #[test]
    fn a_stage_without_tests_fails() {
        assert!(ran(Tally::default()).is_err());
        assert!(ran(Tally { passed: 1, ..Tally::default() }).is_ok());
    }
}
