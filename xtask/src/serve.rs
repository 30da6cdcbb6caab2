//! `cargo xtask serve`: from a fresh clone to the planner in the browser.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::compile::{Order, compile};
use crate::planner;
use crate::shell::{self, headline};
use crate::tools;

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
    tools::c_compiler()?;
    tools::wasm_target()?;
    headline("Building plimsoll");
    let built = compile(&Order {
        command: "build",
        // One selection, so that what both need is built once. The planner comes from a folder: none is put inside.
        selection: &["--package", "plimsoll-probe", "--package", "plimsoll-bundle", "--no-default-features"],
        options: &["--profile", "quick"],
    })?;
    headline("Building the planner");
    let dist = planner::bundle(built.binary("plimsoll-bundle")?, &planner::wasm()?, &[])?;
    headline("Serving");
    let mut serve = Command::new(built.binary("plimsoll")?);
    serve.arg("serve").arg("--planner").arg(dist);
    if let Some(listen) = &options.listen {
        serve.args(["--listen", listen]);
    }
    if options.open {
        serve.arg("--open");
    }
    shell::become_command(&mut serve)
}
