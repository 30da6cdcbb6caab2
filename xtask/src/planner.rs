//! Builds the planner into web/dist, to be looked at and tested: soon there rather than as small as it gets.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::compile::{Order, compile};
use crate::shell;
use crate::tools::{self, WASM_TARGET};
use crate::workspace;

/// Whoever types waits for an estimate: unoptimised it takes ten times as long. Everything else on the page gains little.
pub const OPTIMISED: (&str, &str) = ("CARGO_PROFILE_QUICK_OPT_LEVEL", "2");

/// Builds the WebAssembly.
pub fn wasm() -> Result<PathBuf> {
    tools::wasm_target()?;
    let built = compile(&Order {
        command: "build",
        selection: &["--package", "plimsoll-web", "--target", WASM_TARGET],
        options: &["--bin", "planner", "--profile", "quick"],
        variables: &[OPTIMISED],
    })?;
    Ok(built.binary("planner")?.to_owned())
}

/// Makes the planner's files of it with `plimsoll-bundle`, and says where they are.
pub fn bundle(bundler: &Path, wasm: &Path) -> Result<PathBuf> {
    let dist = workspace::root().join("web/dist");
    shell::run(Command::new(bundler).arg("--wasm").arg(wasm).arg("--out").arg(&dist))?;
    Ok(dist)
}
