//! All tests of the project, built at once; each stage runs its part of them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Tally;
use crate::compile::{Built, Order, Program, compile};
use crate::shell;

/// The tests that cargo built, and the programs they run.
#[derive(Debug)]
pub struct Suite {
    /// What cargo built.
    pub built: Built,
}

impl Suite {
    /// Builds them.
    pub fn build() -> Result<Self> {
        crate::tools::c_compiler()?;
        let order = Order { command: "test", selection: &["--workspace"], ..Order::default() };
        Ok(Self { built: compile(&order)? })
    }

    /// Every program of tests: those within a package's own code, and its `tests/`.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.built.programs.iter().filter(|program| program.is_test)
    }

    /// The tests of a package in `tests/NAME`.
    pub fn target(&self, package: &str, name: &str) -> Result<&Program> {
        let found = self.programs().find(|p| p.package == package && p.kind == "test" && p.name == name);
        found.with_context(|| format!("{package} has no tests/{name}"))
    }

    /// A program of the project.
    pub fn binary(&self, name: &str) -> Result<&Path> {
        self.built.binary(name)
    }
}

/// The command that runs a program of tests, as cargo would.
pub fn command(program: &Program) -> Command {
    let mut test = Command::new(&program.path);
    test.current_dir(&program.folder);
    test
}

/// The names of the tests that a program has.
pub fn names(program: &Program) -> Result<Vec<String>> {
    let list = shell::output(command(program).arg("--list"));
    let list = list.with_context(|| format!("{} does not list its tests", program.path.display()))?;
    Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Runs one, and counts what it says.
pub fn run(test: &mut Command, tally: &mut Tally) -> Result<()> {
    shell::run_watched(test, |line| tally.see(line))
}
