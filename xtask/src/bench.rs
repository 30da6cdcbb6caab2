//! `cargo xtask bench`: measures and writes docs/performance.md.

use std::process::ExitCode;

use anyhow::bail;

/// Measures and writes.
pub fn run() -> anyhow::Result<ExitCode> {
    bail!("nothing to measure yet")
}
