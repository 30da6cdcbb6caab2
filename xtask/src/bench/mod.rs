//! `cargo xtask bench`: measures the engine, the planner and the server, and writes docs/performance.md.

mod machine;
mod measure;
mod page;

use std::{fs, process::ExitCode};

use anyhow::{Context as _, Result};

use crate::{planner, serve, shell::headline, shell::note, tools::Tools, workspace};

/// Measures everything and writes the page. Only what was measured in this run is on it.
pub fn run() -> Result<ExitCode> {
    headline("Looking for the build tools");
    let tools = Tools::ready()?;
    let plimsoll = serve::binary(&tools)?;

    headline("Timing estimates natively");
    let native = measure::native()?;
    headline("Timing estimates in WebAssembly");
    let wasm = measure::wasm(&tools)?;
    headline("Timing the start of the server");
    let start = measure::start_up(&plimsoll)?;

    let page = page::Page {
        machine: machine::describe(),
        versions: format!("{}; {}", machine::versions(), tools.versions()),
        date: machine::date(),
        native,
        wasm,
        sizes: planner::sizes_by_file()?,
        start,
    };
    let path = workspace::root().join("docs/performance.md");
    fs::create_dir_all(path.parent().context("docs has no parent")?)?;
    fs::write(&path, page.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
    note(&format!("wrote {}", path.display()));
    Ok(ExitCode::SUCCESS)
}
