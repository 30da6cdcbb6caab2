//! `cargo xtask bench`: builds what is measured as it is given away, and has `plimsoll-bench` measure it.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::compile::{Built, Order, compile};
use crate::database;
use crate::shell::{self, headline, note};
use crate::tools::{self, WASM_TARGET};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but the load.
    Product,
    /// The engine alone.
    Engine,
    /// The server under load.
    Load,
}

/// Measures a part, and writes docs/performance.md.
pub fn run(part: Part) -> Result<ExitCode> {
    tools::c_compiler()?;
    tools::wasm_target()?;
    if part == Part::Engine {
        return engine();
    }
    // The planner that is measured is the one that others get: as small as it gets.
    if let Err(error) = tools::npm() {
        note(&format!("{error:#}"));
    }
    headline("Building what is measured");
    let built = compile(&Order {
        command: "build",
        selection: &["--package", "plimsoll-probe", "--package", "plimsoll-bench"],
        options: &["--bin", "plimsoll", "--bin", "plimsoll-bench", "--release"],
    })?;
    let mut bench = Command::new(built.binary("plimsoll-bench")?);
    let load = part == Part::Load;
    bench.arg(if load { "load" } else { "page" }).arg("--plimsoll").arg(built.binary("plimsoll")?);
    if load {
        database::find(&mut bench)?;
    } else {
        let wasm = in_wasm()?;
        let out = built.out_dirs.iter().find(|(package, _)| package == "plimsoll-server");
        let (_, out) = out.context("the server's build script did not run")?;
        bench.arg("--planner").arg(out.join("planner"));
        bench.arg("--wasm").arg(wasm.binary("plimsoll-bench-wasm")?);
        bench.args(["--tools", &tools::wasm_opt_version()]);
    }
    headline("Measuring");
    shell::become_command(&mut bench)
}

fn engine() -> Result<ExitCode> {
    headline("Building the engine's cases");
    let built = compile(&Order {
        command: "build",
        selection: &["--package", "plimsoll-bench", "--no-default-features"],
        options: &["--bin", "plimsoll-bench", "--release"],
    })?;
    let wasm = in_wasm()?;
    headline("Measuring");
    let mut bench = Command::new(built.binary("plimsoll-bench")?);
    shell::become_command(bench.arg("engine").arg("--wasm").arg(wasm.binary("plimsoll-bench-wasm")?))
}

fn in_wasm() -> Result<Built> {
    headline("Building the engine's cases as WebAssembly");
    compile(&Order {
        command: "build",
        selection: &["--package", "plimsoll-bench", "--target", WASM_TARGET],
        options: &["--bin", "plimsoll-bench-wasm", "--profile", "wasm-release"],
    })
}
