//! `cargo xtask serve`: from a fresh clone to the planner in the browser.

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};

use crate::{
    planner,
    shell::{self, headline},
    tools::Tools,
    workspace,
};

/// What `serve` was asked for.
#[derive(Debug, Default)]
pub struct Options {
    /// Handed to `plimsoll serve`.
    pub listen: Option<String>,
    /// Handed to `plimsoll serve`.
    pub open: bool,
}

/// Builds everything and serves it.
pub fn run(options: &Options) -> Result<ExitCode> {
    headline("Looking for the build tools");
    let plimsoll = binary(&Tools::ready()?)?;
    let mut serve = Command::new(plimsoll);
    serve.arg("serve");
    if let Some(listen) = &options.listen {
        serve.args(["--listen", listen]);
    }
    if options.open {
        serve.arg("--open");
    }
    headline("Serving");
    become_command(&mut serve)
}

/// The release `plimsoll` with the planner inside.
pub fn binary(tools: &Tools) -> Result<PathBuf> {
    planner::build(tools)?;
    headline("Building plimsoll with the planner inside");
    shell::run(shell::cargo().args(["build", "--release", "--locked", "--package", "plimsoll-probe"]))?;
    Ok(workspace::target()?.join("release").join(format!("plimsoll{}", std::env::consts::EXE_SUFFIX)))
}

/// Puts the command in this process's place, so that Ctrl-C and its exit code are the server's own.
#[cfg(unix)]
fn become_command(command: &mut Command) -> Result<ExitCode> {
    use std::os::unix::process::CommandExt as _;
    Err(command.exec()).context("cannot start plimsoll")
}

#[cfg(not(unix))]
fn become_command(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("cannot start plimsoll")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
