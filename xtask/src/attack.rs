//! `cargo xtask attack`: the long form of what is tried against the program and its server, on this machine only.

use std::process::ExitCode;

use anyhow::Result;

use crate::shell::{self, headline};

/// Runs the short form and the long one.
pub fn run() -> Result<ExitCode> {
    headline("What was tried before, for longer");
    let mut attack = shell::cargo();
    attack.args(["test", "--package", "plimsoll-probe", "--release", "--test", "attack"]);
    shell::run(attack.args(["--", "--include-ignored", "--nocapture"]))?;
    Ok(ExitCode::SUCCESS)
}
