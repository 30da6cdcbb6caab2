//! What each stage runs.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Outcome, Tally};
use crate::{
    browser::Browser,
    database, dependencies,
    python::Python,
    serve,
    shell::{self, note},
    tools::{self, Tools, WASM_TARGET},
    workspace,
};

/// The planner: what of it needs no browser is built and tested natively too, the page only for wasm32.
const PLANNER: &str = "plimsoll-web";

/// The package of the end-to-end tests, and its test target that needs a browser.
const END_TO_END: (&str, &str) = ("plimsoll-tests", "e2e");

/// The test targets that need a Python with PyTorch. Their tests are marked as ignored, so that cargo alone names them.
const TORCH_TESTED: [(&str, &str); 3] =
    [("plimsoll-probe", "worker"), ("plimsoll-probe", "probe_real"), ("plimsoll-probe", "rehearse")];

/// The test targets with cases that need PostgreSQL. Those are marked as ignored, so that cargo alone names them.
const DATABASE_TESTED: [(&str, &str); 2] = [("plimsoll-server", "measurements"), ("plimsoll-probe", "serve")];

/// The test targets that run as WebAssembly, under Node: the engine must give the same bytes there.
const WASM_TESTED: [(&str, &str); 1] = [("plimsoll-tests", "wasm_parity")];

/// What the wasm test runner needs.
const NO_NODE: &str = "Node.js is not installed, and the WebAssembly tests run in it: install it (https://nodejs.org)";

pub fn formatting() -> Result<Outcome> {
    shell::run(shell::cargo().args(["fmt", "--all", "--check"]))?;
    Ok(Outcome::Passed)
}

/// Sources, licences, and known holes of what the project depends on.
pub fn dependencies() -> Result<Outcome> {
    dependencies::check()?;
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

/// Everything but the tests that have stages of their own.
pub fn native_tests(tally: &mut Tally) -> Result<Outcome> {
    let apart: Vec<(&str, &str)> = TORCH_TESTED.into_iter().chain(DATABASE_TESTED).chain([END_TO_END]).collect();
    let mut packages: Vec<&str> = apart.iter().map(|(package, _)| *package).collect();
    packages.sort_unstable();
    packages.dedup();

    let mut all = shell::cargo();
    all.args(["test", "--locked", "--workspace", "--no-fail-fast"]);
    for package in &packages {
        all.args(["--exclude", package]);
    }
    let mut result = shell::run_watched(&mut all, |line| tally.see(line));
    for package in packages {
        let mut rest = shell::cargo();
        rest.args(["test", "--locked", "--package", package, "--no-fail-fast"]).args(code_targets(package)?);
        for target in targets(package, "test")?.iter().filter(|target| !apart.contains(&(package, target))) {
            rest.args(["--test", target]);
        }
        result = result.and(shell::run_watched(&mut rest, |line| tally.see(line)));
    }
    result?;
    ran(*tally)
}

/// The worker of the probe with real PyTorch: in CI always, elsewhere where there is a Python with it.
pub fn torch_tests(ci: bool, tally: &mut Tally) -> Result<Outcome> {
    let python = match Python::ready(ci) {
        Ok(python) => python,
        Err(error) => {
            for (package, target) in TORCH_TESTED {
                for test in listed(test_command(package, target)?)? {
                    note(&format!("skipped: {test}"));
                    tally.skipped += 1;
                }
            }
            return Ok(Outcome::NotRun { why: format!("{error:#}"), required: ci });
        }
    };
    note(&format!("with {}", python.versions));
    let mut result = Ok(());
    for (package, target) in TORCH_TESTED {
        let mut test = test_command(package, target)?;
        test.env("PLIMSOLL_TEST_PYTHON", &python.program);
        // Each has a Python beside it that computes.
        test.args(["--no-fail-fast", "--", "--include-ignored", "--test-threads", "2"]);
        result = result.and(shell::run_watched(&mut test, |line| tally.see(line)));
    }
    result?;
    ran(*tally)
}

/// Measurements kept in SQLite, and in a PostgreSQL of the tests' own: in CI always, elsewhere where it is installed.
pub fn database_tests(ci: bool, tally: &mut Tally) -> Result<Outcome> {
    let postgres = database::ready(ci);
    let mut result = Ok(());
    for (package, target) in DATABASE_TESTED {
        let mut test = test_command(package, target)?;
        test.args(["--no-fail-fast", "--"]);
        if postgres.is_ok() {
            test.arg("--include-ignored");
        }
        result = result.and(shell::run_watched(&mut test, |line| tally.see(line)));
    }
    result?;
    match postgres {
        Ok(()) => ran(*tally),
        Err(error) => Ok(Outcome::NotRun { why: format!("only on SQLite: {error:#}"), required: ci }),
    }
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
    for command in ["accuracy", "schema", "reference"] {
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
    let (package, target) = END_TO_END;
    Ok(listed(test_command(package, target)?)?.len().try_into()?)
}

/// The names of the tests that a command would run.
fn listed(mut test: Command) -> Result<Vec<String>> {
    let list = shell::output(test.args(["--", "--list"])).context("the tests do not compile")?;
    Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Runs one test target.
fn test_command(package: &str, target: &str) -> Result<Command> {
    ensure!(targets(package, "test")?.iter().any(|t| t == target), "{package} has no test target `{target}`");
    let mut test = shell::cargo();
    test.args(["test", "--locked", "--package", package, "--test", target]);
    Ok(test)
}

/// The journeys a person takes, in a real browser through the real server. The tests learn from the environment what
/// to run: `PLIMSOLL` (the binary), `CHROME`, `CHROMEDRIVER`, `AXE` (the accessibility checker's script).
pub fn browser_tests(tools: &Tools, tally: &mut Tally) -> Result<Outcome> {
    let (package, target) = END_TO_END;
    let mut test = test_command(package, target)?;
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

/// The flags that select the tests within a package's own code.
fn code_targets(package: &str) -> Result<Vec<&'static str>> {
    let mut flags = Vec::new();
    for (kind, flag) in [("lib", "--lib"), ("bin", "--bins")] {
        if !targets(package, kind)?.is_empty() {
            flags.push(flag);
        }
    }
    Ok(flags)
}

/// The names of a package's targets of a kind: `lib`, `bin`, `test`.
fn targets(package: &str, kind: &str) -> Result<Vec<String>> {
    let metadata = workspace::metadata()?;
    let packages = metadata.get("packages").and_then(Value::as_array).context("no packages in `cargo metadata`")?;
    let found = packages.iter().find(|p| p.get("name").and_then(Value::as_str) == Some(package));
    let targets = found.and_then(|p| p.get("targets")).and_then(Value::as_array);
    let targets = targets.with_context(|| format!("the workspace has no package `{package}`"))?;
    let is_it = |t: &&Value| t.get("kind").and_then(Value::as_array).is_some_and(|k| k.iter().any(|k| k == kind));
    Ok(targets.iter().filter(is_it).filter_map(|t| t.get("name")?.as_str().map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_targets_come_from_cargo() {
        assert_eq!(targets("plimsoll-server", "test").unwrap(), ["app", "measurements", "socket"]);
        assert!(targets("no-such-package", "test").is_err());
        assert_eq!(code_targets("plimsoll-probe").unwrap(), ["--bins"]);
        assert_eq!(code_targets("plimsoll-tests").unwrap(), ["--lib"]);
    }

    #[test]
    fn what_has_a_stage_of_its_own_is_there() {
        for (package, target) in TORCH_TESTED.into_iter().chain(DATABASE_TESTED).chain(WASM_TESTED).chain([END_TO_END])
        {
            assert!(test_command(package, target).is_ok(), "{package} {target}");
        }
    }

    #[test]
    fn a_stage_without_tests_fails() {
        assert!(ran(Tally::default()).is_err());
        assert!(ran(Tally { passed: 1, ..Tally::default() }).is_ok());
    }
}
