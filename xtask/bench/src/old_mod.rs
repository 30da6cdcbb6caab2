//! `cargo xtask bench`: measures the engine, the planner and the server, and writes docs/performance.md.

mod load;
mod machine;
mod measure;
mod page;

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};

use crate::{planner, serve, shell::headline, shell::note, tools::Tools, workspace};

/// Measures everything but the load, and writes the page. Only what was measured in this run is on it, and what
/// [`load`] put there.
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
        load: page::load_of(&fs::read_to_string(path()).unwrap_or_default()).to_owned(),
    };
    write(&page.to_string())
}

/// Measures the server under load only, and puts it into the page.
pub fn load() -> Result<ExitCode> {
    let text = load::run()?;
    let page = fs::read_to_string(path()).context("run `cargo xtask bench` first")?;
    write(&page::with_load(&page, &text).context("docs/performance.md has no part about load")?)
}

fn path() -> PathBuf {
    workspace::root().join("docs/performance.md")
}

fn write(page: &str) -> Result<ExitCode> {
    let path = path();
    fs::create_dir_all(path.parent().context("docs has no parent")?)?;
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    note(&format!("wrote {}", path.display()));
    Ok(ExitCode::SUCCESS)
}
