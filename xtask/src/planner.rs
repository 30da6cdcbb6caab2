//! Builds the planner into web/dist, to be looked at and tested: soon there rather than as small as it gets.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::compile::{Order, compile};
use crate::shell;
use crate::tools::{self, WASM_TARGET};
use crate::workspace;

/// The profile of what is built for the browser. Whoever types waits for the engine: unoptimised it takes ten times as long.
/// Everything else on the page gains little, but would be several times as large without any optimisation.
///
/// No profile of its own: cargo would build what runs inside the compiler once more for it.
pub const PROFILE: [&str; 17] = [
    "--profile=quick",
    "--config=profile.quick.opt-level=1",
    "--config=profile.quick.package.plimsoll-allocator.opt-level=2",
    "--config=profile.quick.package.plimsoll-ledger.opt-level=2",
    "--config=profile.quick.package.plimsoll-scenario.opt-level=2",
    "--config=profile.quick.package.plimsoll-torch.opt-level=2",
    "--config=profile.quick.package.plimsoll-parallel.opt-level=2",
    "--config=profile.quick.package.plimsoll-families.opt-level=2",
    "--config=profile.quick.package.plimsoll-run.opt-level=2",
    "--config=profile.quick.package.plimsoll-estimate.opt-level=2",
    // Names of the browser's functions, and what Leptos needs on a server: it takes long to optimise and changes nothing.
    "--config=profile.quick.package.web-sys.opt-level=0",
    "--config=profile.quick.package.js-sys.opt-level=0",
    "--config=profile.quick.package.leptos_config.opt-level=0",
    "--config=profile.quick.package.regex.opt-level=0",
    "--config=profile.quick.package.regex-automata.opt-level=0",
    "--config=profile.quick.package.regex-syntax.opt-level=0",
    "--config=profile.quick.package.aho-corasick.opt-level=0",
];

/// Builds the WebAssembly.
pub fn wasm() -> Result<PathBuf> {
    tools::wasm_target()?;
    let built = compile(&Order {
        command: "build",
        selection: &["--package", "plimsoll-web", "--target", WASM_TARGET],
        options: &[["--bin", "planner"].as_slice(), &PROFILE].concat(),
    })?;
    Ok(built.binary("planner")?.to_owned())
}

/// Makes the planner's files of it with `plimsoll-bundle`, which is given `options` too, and says where they are.
pub fn bundle(bundler: &Path, wasm: &Path, options: &[&str]) -> Result<PathBuf> {
    let dist = workspace::root().join("web/dist");
    shell::run(Command::new(bundler).arg("--wasm").arg(wasm).arg("--out").arg(&dist).args(options))?;
    Ok(dist)
}
