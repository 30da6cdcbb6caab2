//! `cargo xtask bench`: builds what is measured as it is given away, and has `plimsoll-bench` measure it.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::browser::Browser;
use crate::compile::{Built, Order, compile};
use crate::shell::{self, headline, note};
use crate::tools::{self, WASM_TARGET};
use crate::{database, workspace};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but what stands below.
    Product,
    /// The engine alone.
    Engine,
    /// The server under load.
    Load,
    /// The page in a browser.
    Browser,
}

/// Measures a part, and has it written.
pub fn run(part: Part) -> Result<ExitCode> {
    tools::c_compiler()?;
    if part == Part::Browser {
        return browser();
    }
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

/// The planner as it is given away, in a real browser, from the server of the tests: what people wait for, and what of
/// the WebAssembly is whose.
fn browser() -> Result<ExitCode> {
    tools::wasm_target()?;
    tools::npm()?;
    let browser = Browser::ready()?;
    headline("Building the planner as it is given away");
    let wasm = compile(&Order {
        command: "build",
        selection: &["--package", "plimsoll-web", "--target", WASM_TARGET],
        options: &["--bin", "planner", "--profile", "wasm-release"],
    })?;
    let built = compile(&Order {
        command: "build",
        selection: &["--package", "plimsoll-probe", "--package", "plimsoll-bundle", "--no-default-features"],
        options: &["--profile", "quick"],
    })?;
    let bench = compile(&Order {
        command: "build",
        selection: &["--package", "plimsoll-bench"],
        options: &["--bin", "plimsoll-bench"],
    })?;
    let planner = workspace::root().join("target/bench/planner");
    let bundle = |folder: &Path| {
        let mut bundle = Command::new(built.binary("plimsoll-bundle")?);
        bundle.arg("--wasm").arg(wasm.binary("planner")?).arg("--out").arg(folder);
        bundle.arg("--wasm-opt").arg(tools::wasm_opt());
        anyhow::Ok(bundle)
    };
    let journeys = |which: &str, folder: &Path| {
        let mut test = shell::cargo();
        test.args(["test", "--package", "plimsoll-tests", "--test", "e2e", which, "--"]);
        // One after the other: what is measured has the machine to itself.
        test.args(["--ignored", "--nocapture", "--test-threads=1"]);
        test.env("PLIMSOLL", built.binary("plimsoll")?).env("PLANNER", folder);
        test.env("CHROME", &browser.chrome).env("CHROMEDRIVER", &browser.driver);
        anyhow::Ok(test)
    };
    headline("What the page calls while it opens");
    let (watched, marks) = (planner.with_extension("watched"), planner.with_extension("marks"));
    shell::run(bundle(&watched)?.arg("--watched").arg(&marks))?;
    let later = workspace::root().join("web/bundle/later.txt");
    shell::run(journeys("called::", &watched)?.env("MARKS", &marks).env("LATER", &later))?;
    shell::run(bundle(&planner)?.arg("--release"))?;
    headline("Measuring");
    let said = journeys("latency::", &planner)?.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(said.status.success(), "the browser could not be measured:\n{}", String::from_utf8_lossy(&said.stdout));
    let lines = planner.with_extension("txt");
    fs::write(&lines, &said.stdout).with_context(|| format!("cannot write {}", lines.display()))?;
    let mut write = Command::new(bench.binary("plimsoll-bench")?);
    write
        .arg("browser")
        .arg("--said")
        .arg(&lines)
        .arg("--planner")
        .arg(&planner)
        .arg("--wasm")
        .arg(wasm.binary("planner")?);
    shell::become_command(write.args(["--tools", &format!("{}, {}", browser.version, tools::wasm_opt_version())]))
}
