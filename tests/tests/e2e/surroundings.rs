//! What the journeys need from outside; `cargo xtask test` prepares it all.
//!
//! By hand, once `cargo xtask serve` has built the planner:
//! `PLIMSOLL=target/quick/plimsoll CHROME=/usr/bin/chromium CHROMEDRIVER=/usr/bin/chromedriver
//! AXE=tests/tools/node_modules/axe-core/axe.min.js cargo test --package plimsoll-tests --test e2e`

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// The `plimsoll` binary.
pub fn plimsoll() -> Result<PathBuf> {
    named("PLIMSOLL", "the plimsoll binary")
}

/// Chromium or Chrome.
pub fn chrome() -> Result<PathBuf> {
    named("CHROME", "Chromium or Chrome")
}

/// The driver of the same version.
pub fn chromedriver() -> Result<PathBuf> {
    named("CHROMEDRIVER", "the chromedriver of that browser")
}

/// The script of the accessibility checker.
pub fn axe() -> Result<PathBuf> {
    named("AXE", "axe-core's axe.min.js")
}

/// Whether every journey is to be taken without a pointer: `PLIMSOLL_E2E_KEYBOARD=1`.
pub fn by_keyboard() -> bool {
    std::env::var_os("PLIMSOLL_E2E_KEYBOARD").is_some_and(|value| value == "1")
}

/// The planner as plain files: in web/dist, or where `PLANNER` says.
pub fn planner() -> Result<PathBuf> {
    let folder = std::env::var_os("PLANNER").map_or_else(|| root().join("web/dist"), |folder| root().join(folder));
    ensure!(
        folder.join("index.html").is_file(),
        "{} holds no planner: `cargo xtask serve` builds it",
        folder.display()
    );
    Ok(folder)
}

/// Where what failed journeys saw is kept.
pub fn evidence() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap_or(Path::new(".")).join("e2e")
}

/// Where browsers keep what they write while they run.
pub fn profiles() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("profiles")
}

/// The root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".."))
}

/// A file an environment variable names; a relative path starts at the root of the workspace.
fn named(variable: &str, what: &str) -> Result<PathBuf> {
    let value = std::env::var_os(variable)
        .with_context(|| format!("{variable} does not say where {what} is: run `cargo xtask test`, which does"))?;
    let path = root().join(value);
    ensure!(path.is_file(), "{variable} names {}, which is no file; it should be {what}", path.display());
    Ok(path)
}
