//! `cargo xtask accuracy`, `schema` and `reference`: has the engine write what of docs/ it says.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::compile::{Built, Order, compile};
use crate::shell::{self, headline};

/// What is written.
pub const COMMANDS: [&str; 3] = ["accuracy", "schema", "reference"];

/// Writes, or with `check` fails when what is committed differs.
pub fn run(command: &str, check: bool) -> Result<ExitCode> {
    headline("Building the engine");
    let built = compile(&Order {
        command: "build",
        // As the tests are built, so that both share what they are built of.
        selection: &["--workspace"],
        options: &["--bin", "scoreboard"],
    })?;
    shell::become_command(&mut asked(&built, command, check)?)
}

/// The command.
pub fn asked(built: &Built, command: &str, check: bool) -> Result<Command> {
    let mut scoreboard = Command::new(built.binary("scoreboard")?);
    scoreboard.arg(command);
    if check {
        scoreboard.arg("--check");
    }
    Ok(scoreboard)
}
