//! Running other programs.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The standard output of a program; what it says of errors is seen as it comes.
///
/// # Errors
/// It does not start, or fails.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let done = done.with_context(|| format!("cannot start {name}"))?;
    ensure!(done.status.success(), "{name} failed ({})", done.status);
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}
