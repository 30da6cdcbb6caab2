//! What each stage runs.

use std::process::Command;

use anyhow::{Result, ensure};

use super::suite::{self, Suite};
use super::{Outcome, Tally};
use crate::browser::Browser;
use crate::compile::{Order, Program, compile};
use crate::python::Python;
use crate::shell::{self, note};
use crate::tools::{self, WASM_TARGET};
use crate::{database, planner, scoreboard, workspace};

/// The planner: what of it needs no browser is built and tested natively too, the page only for wasm32.
const PLANNER: &str = "plimsoll-web";

/// The package of the end-to-end tests, and its test target that needs a browser.
const END_TO_END: (&str, &str) = ("plimsoll-tests", "e2e");

/// The test targets that need a Python with PyTorch. Their tests are marked as ignored, so that cargo alone names them.
const TORCH_TESTED: [(&str, &str); 5] = [
    ("plimsoll-probe", "worker"),
    ("plimsoll-probe", "probe_real"),
    ("plimsoll-probe", "rehearse"),
    ("plimsoll-probe", "hollow"),
    ("plimsoll-probe", "loops"),
];

/// The test targets with cases that need PostgreSQL. Those are marked as ignored, so that cargo alone names them.
const DATABASE_TESTED: [(&str, &str); 2] = [("plimsoll-server", "measurements"), ("plimsoll-probe", "serve")];

/// The test that runs as WebAssembly, under Node: the engine must give the same bytes there.
const WASM_TESTED: (&str, &str) = ("plimsoll-tests", "wasm_parity");

/// What the WebAssembly tests need.
const NO_NODE: &str = "Node.js is not installed, and the WebAssembly tests run in it: install it (https://nodejs.org)";

pub fn formatting() -> Result<Outcome> {
    shell::run(shell::cargo().args(["fmt", "--all", "--check"]))?;
    Ok(Outcome::Passed)
}

/// What is known against a dependency stands in a database on the network: asked where there is a program that does.
/// Sources and licences are checked by a test of this program.
pub fn advisories() -> Result<Outcome> {
    let not_run = |why: &str| Ok(Outcome::NotRun { why: why.to_owned(), required: false });
    if shell::find_program("cargo-deny", &[]).is_empty() {
        return not_run("cargo-deny is not installed (`cargo install cargo-deny`); the audit workflow asks daily");
    }
    if shell::output(shell::cargo().args(["deny", "fetch", "db"])).is_none() {
        return not_run("the database of advisories cannot be fetched from here");
    }
    shell::run(shell::cargo().args(["deny", "--offline", "check"]))?;
    Ok(Outcome::Passed)
}

pub fn native_lints() -> Result<Outcome> {
    let mut clippy = shell::cargo();
    clippy.args(["clippy", "--locked", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    shell::run(&mut clippy)?;
    Ok(Outcome::Passed)
}

/// In the profile the planner is built in, so that what runs inside the compiler is built once for both.
pub fn planner_lints() -> Result<Outcome> {
    tools::wasm_target()?;
    let mut clippy = shell::cargo();
    clippy.args(["clippy", "--locked", "--quiet", "--package", PLANNER, "--target", WASM_TARGET, "--profile", "quick"]);
    shell::run(clippy.args(["--", "-D", "warnings"]))?;
    Ok(Outcome::Passed)
}

/// Links in the documentation lead somewhere.
pub fn documentation() -> Result<Outcome> {
    let mut doc = shell::cargo();
    doc.args(["doc", "--locked", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    shell::run(&mut doc)?;
    Ok(Outcome::Passed)
}

/// Everything but the tests that have stages of their own.
pub fn native_tests(suite: &Suite, tally: &mut Tally) -> Result<Outcome> {
    let apart: Vec<&Program> = TORCH_TESTED
        .into_iter()
        .chain(DATABASE_TESTED)
        .chain([END_TO_END, WASM_TESTED])
        .map(|(package, target)| suite.target(package, target))
        .collect::<Result<_>>()?;
    let mut result = Ok(());
    for program in suite.programs().filter(|program| !apart.contains(program)) {
        result = result.and(suite::run(&mut suite::command(program), tally));
    }
    result?;
    ran(*tally)
}

/// What the documentation shows runs.
pub fn examples(tally: &mut Tally) -> Result<Outcome> {
    let mut examples = shell::cargo();
    examples.args(["test", "--locked", "--quiet", "--workspace", "--doc", "--no-fail-fast"]);
    suite::run(&mut examples, tally)?;
    ran(*tally)
}

/// The browser's tests find it built.
pub fn planner_build() -> Result<Outcome> {
    planner::wasm()?;
    Ok(Outcome::Passed)
}

/// The instructions that PyTorch's oneDNN may use at most.
const ISA: &str = "ONEDNN_MAX_CPU_ISA";

/// The threads that an operator of PyTorch may use.
const THREADS: &str = "OMP_NUM_THREADS";

/// The worker of the probe with real PyTorch: in CI always, elsewhere where there is a Python with it.
pub fn torch_tests(suite: &Suite, python: Result<Python>, ci: bool, tally: &mut Tally) -> Result<Outcome> {
    let programs: Vec<&Program> =
        TORCH_TESTED.into_iter().map(|(package, target)| suite.target(package, target)).collect::<Result<_>>()?;
    let python = match python {
        Ok(python) => python,
        Err(error) => {
            for program in programs {
                for test in suite::names(program)? {
                    note(&format!("skipped: {test}"));
                    tally.skipped += 1;
                }
            }
            return Ok(Outcome::NotRun { why: format!("{error:#}"), required: ci });
        }
    };
    note(&format!("with {}", python.versions));
    let mut result = Ok(());
    for program in programs {
        let mut test = suite::command(program);
        test.env("PLIMSOLL_TEST_PYTHON", &python.program);
        // Some virtual machines name AMX among their processor's instructions and then refuse it: oneDNN's products of
        // bfloat16 end in SIGILL there. What is asked here is what runs, not how fast.
        // And several Pythons run at once: threads of each that wait for one another by spinning keep the others from their
        // work, which took twice the time on a busy machine with two processors.
        for (variable, value) in [(ISA, "AVX512_CORE"), (THREADS, "1")] {
            if std::env::var_os(variable).is_none() {
                test.env(variable, value);
            }
        }
        // Each has a Python beside it that computes.
        test.args(["--include-ignored", "--test-threads", "2"]);
        result = result.and(suite::run(&mut test, tally));
    }
    result?;
    ran(*tally)
}

/// Measurements kept in SQLite, and in a PostgreSQL of the tests' own: in CI always, elsewhere where it is installed.
pub fn database_tests(suite: &Suite, ci: bool, tally: &mut Tally) -> Result<Outcome> {
    if ci {
        database::install()?;
    }
    let (mut result, mut missing) = (Ok(()), None);
    for (package, target) in DATABASE_TESTED {
        let mut test = suite::command(suite.target(package, target)?);
        match database::find(&mut test) {
            Ok(folder) => {
                note(&format!("with the PostgreSQL in {}", folder.display()));
                test.arg("--include-ignored");
            }
            Err(error) => missing = Some(error),
        }
        result = result.and(suite::run(&mut test, tally));
    }
    result?;
    match missing {
        None => ran(*tally),
        Some(error) => Ok(Outcome::NotRun { why: format!("only on SQLite: {error:#}"), required: ci }),
    }
}

pub fn wasm_tests(tally: &mut Tally) -> Result<Outcome> {
    if shell::output(Command::new("node").arg("--version")).is_none() {
        return Ok(Outcome::NotRun { why: NO_NODE.to_owned(), required: true });
    }
    tools::wasm_target()?;
    let (package, target) = WASM_TESTED;
    // As the planner is built, and with it: alone, what both use would have fewer features, and the engine be built again.
    let built = compile(&Order {
        command: "test",
        selection: &["--package", package, "--package", PLANNER, "--target", WASM_TARGET],
        options: &[["--test", target].as_slice(), &planner::PROFILE].concat(),
    })?;
    for program in built.programs.iter().filter(|program| program.name == target) {
        let mut node = Command::new("node");
        node.arg(workspace::root().join("tests/kit/run.mjs")).arg(&program.path);
        suite::run(&mut node, tally)?;
    }
    ran(*tally)
}

pub fn accuracy(suite: &Suite) -> Result<Outcome> {
    for command in scoreboard::COMMANDS {
        shell::run(&mut scoreboard::asked(&suite.built, command, true)?)?;
    }
    Ok(Outcome::Passed)
}

/// The browser tests were not asked for. They are built and counted all the same: they must still compile.
pub fn browser_tests_left_out(suite: &Suite, tally: &mut Tally) -> Result<Outcome> {
    let (package, target) = END_TO_END;
    tally.skipped = suite::names(suite.target(package, target)?)?.len().try_into()?;
    Ok(Outcome::NotRun { why: "--without-browser was given".to_owned(), required: false })
}

/// The journeys a person takes, in a real browser through the real server. The tests learn from the environment what
/// to run: `PLIMSOLL` (the program), `CHROME`, `CHROMEDRIVER`, `AXE` (the accessibility checker's script). The planner's
/// files they find in web/dist.
pub fn browser_tests(suite: &Suite, tally: &mut Tally) -> Result<Outcome> {
    let (package, target) = END_TO_END;
    let program = suite.target(package, target)?;
    let (browser, axe) = match Browser::ready().and_then(|browser| Ok((browser, tools::axe()?))) {
        Ok(found) => found,
        Err(error) => {
            tally.skipped = suite::names(program)?.len().try_into()?;
            return Ok(Outcome::NotRun { why: format!("{error:#}"), required: true });
        }
    };
    note(&format!("in {} ({})", browser.version, browser.chrome.display()));
    // In two halves, as what is given away: each journey shows that they are one program.
    planner::bundle(suite.binary("plimsoll-bundle")?, &planner::wasm()?, &["--halves"])?;
    let mut test = suite::command(program);
    test.env("PLIMSOLL", suite.binary("plimsoll")?);
    test.env("CHROME", browser.chrome).env("CHROMEDRIVER", browser.driver).env("AXE", axe);
    suite::run(&mut test, tally)?;
    ran(*tally)
}

/// A stage of tests that ran none has shown nothing.
fn ran(tally: Tally) -> Result<Outcome> {
    ensure!(tally.ran(), "no test ran");
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_stage_of_its_own_is_there() {
        for (package, target) in TORCH_TESTED.into_iter().chain(DATABASE_TESTED).chain([END_TO_END, WASM_TESTED]) {
            let folder = package.trim_start_matches("plimsoll-");
            let tests = workspace::root().join(folder).join("tests").join(target);
            assert!(tests.is_dir() || tests.with_extension("rs").is_file(), "{package} {target}");
        }
    }

    #[test]
    fn a_stage_without_tests_fails() {
        assert!(ran(Tally::default()).is_err());
        assert!(ran(Tally { passed: 1, ..Tally::default() }).is_ok());
    }
}
