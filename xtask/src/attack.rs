//! `cargo xtask attack`: the long form of what is tried against the program and its server, on this machine only.

use std::process::ExitCode;

use anyhow::Result;

use crate::shell::{self, headline};

/// Hostile inputs that are made unless another number is asked for: some ten minutes of one processor.
const INPUTS: &str = "2000000";

/// What `attack` was asked for.
#[derive(Debug, Default)]
pub struct Options {
    /// How many hostile inputs.
    pub inputs: Option<String>,
}

/// Runs the short form and the long one, then hostile inputs of every target.
pub fn run(options: &Options) -> Result<ExitCode> {
    headline("What was tried before, for longer");
    let mut attack = shell::cargo();
    attack.args(["test", "--locked", "--package", "plimsoll-probe", "--release", "--test", "attack"]);
    // One after the other: how long honest clients wait is measured.
    let outcome = shell::run(attack.args(["--", "--include-ignored", "--nocapture", "--test-threads", "1"]));
    headline("Hostile inputs");
    let mut hostile = shell::cargo();
    hostile.args(["run", "--locked", "--quiet", "--profile", "hostile", "--package", "plimsoll-fuzz"]);
    hostile.args(["--bin", "hostile", "--", "--inputs", options.inputs.as_deref().unwrap_or(INPUTS)]);
    outcome.and(shell::run(&mut hostile))?;
    Ok(ExitCode::SUCCESS)
}
