//! Measures the engine, the planner and the server, and writes docs/performance.md. `cargo xtask bench` builds what it
//! measures and says where that is.
#![forbid(unsafe_code)]

mod browser;
mod case;
mod crates;
#[cfg(feature = "server")]
mod fill;
#[cfg(feature = "server")]
mod load;
mod machine;
mod measure;
mod page;
mod process;
mod size;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use lexopt::prelude::*;

const USAGE: &str = "\
Usage: plimsoll-bench page --plimsoll PROGRAM --planner DIRECTORY --wasm PROGRAM --tools TEXT
       plimsoll-bench engine --wasm PROGRAM
       plimsoll-bench load --plimsoll PROGRAM
       plimsoll-bench browser --said FILE --planner DIRECTORY --wasm FILE --tools TEXT
       plimsoll-bench case ID
";

/// What was asked for.
#[derive(Debug, Default)]
struct Options {
    command: String,
    case: String,
    /// The release build.
    plimsoll: PathBuf,
    /// The files of the planner that is inside it.
    planner: PathBuf,
    /// `plimsoll-bench-wasm`, or the planner as cargo built it.
    wasm: PathBuf,
    /// What the journeys that measure said.
    said: PathBuf,
    /// What the planner was made with.
    tools: String,
}

fn main() -> ExitCode {
    let options = match parse(lexopt::Parser::from_env()) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("plimsoll-bench: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match options.command.as_str() {
        "case" => case::run(&options.case),
        "load" => load(&options),
        "engine" => page(&options, None),
        "browser" => in_browser(&options),
        _ => all_but_load(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut parser: lexopt::Parser) -> Result<Options, lexopt::Error> {
    let mut options = Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("plimsoll") => options.plimsoll = parser.value()?.into(),
            Long("planner") => options.planner = parser.value()?.into(),
            Long("said") => options.said = parser.value()?.into(),
            Long("wasm") => options.wasm = parser.value()?.into(),
            Long("tools") => options.tools = parser.value()?.string()?,
            Value(word) if options.command.is_empty() => options.command = word.string()?,
            Value(word) if options.command == "case" && options.case.is_empty() => options.case = word.string()?,
            other => return Err(other.unexpected()),
        }
    }
    let missing = |path: &Path| path.as_os_str().is_empty();
    match options.command.as_str() {
        "page" if missing(&options.plimsoll) || missing(&options.planner) || missing(&options.wasm) => {
            Err("page needs --plimsoll, --planner and --wasm".into())
        }
        "load" if missing(&options.plimsoll) => Err("load needs --plimsoll".into()),
        "engine" if missing(&options.wasm) => Err("engine needs --wasm".into()),
        "browser" if missing(&options.said) || missing(&options.planner) || missing(&options.wasm) => {
            Err("browser needs --said, --planner and --wasm".into())
        }
        "page" | "engine" | "load" | "browser" | "case" => Ok(options),
        other => Err(format!("there is no command `{other}`").into()),
    }
}

/// Measures everything but the load, and writes the page.
fn all_but_load(options: &Options) -> Result<()> {
    eprintln!("timing the start of the server");
    let start = measure::start_up(&options.plimsoll)?;
    page(options, Some((size::by_file(&options.planner)?, start)))
}

/// Times the engine and writes the page. Only what was measured in this run is on it, and what [`load`] put there.
fn page(options: &Options, product: Option<(Vec<size::Size>, measure::StartUp)>) -> Result<()> {
    let busy = machine::others();
    eprintln!("timing estimates natively");
    let native = measure::native()?;
    eprintln!("timing estimates in WebAssembly");
    let wasm = measure::wasm(&options.wasm)?;
    let tools = if options.tools.is_empty() { String::new() } else { format!("; {}", options.tools) };
    let before = fs::read_to_string(path()).unwrap_or_default();
    let page = page::Page {
        machine: machine::describe(),
        busy,
        versions: format!("{}{tools}", machine::versions()),
        date: machine::date(),
        native,
        wasm,
        product,
        load: page::LOAD.of(&before).to_owned(),
        browser: page::BROWSER.of(&before).to_owned(),
    };
    write(&page.to_string())
}

#[cfg(not(feature = "server"))]
fn load(_: &Options) -> Result<()> {
    anyhow::bail!("this program was built without the server")
}

/// Writes how long people wait in a browser, and what the planner is made of, into the page.
fn in_browser(options: &Options) -> Result<()> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let waits = browser::waits(&String::from_utf8_lossy(&read(&options.said)?))?;
    let crates = crates::sizes(&read(&options.wasm)?)?;
    let text = browser::part(&waits, &crates, &size::by_file(&options.planner)?, &options.tools)?;
    let page = fs::read_to_string(path()).context("run `cargo xtask bench` first")?;
    write(&page::BROWSER.put(&page, &text).context("docs/performance.md has no part about the browser")?)
}

/// Measures the server under load only, and puts it into the page.
#[cfg(feature = "server")]
fn load(options: &Options) -> Result<()> {
    let text = load::run(&options.plimsoll)?;
    let page = fs::read_to_string(path()).context("run `cargo xtask bench` first")?;
    write(&page::LOAD.put(&page, &text).context("docs/performance.md has no part about load")?)
}

/// The root of the project.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."))
}

fn path() -> PathBuf {
    root().join("docs/performance.md")
}

fn write(page: &str) -> Result<()> {
    let path = path();
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_must_be_named() {
        let read = |line: &str| parse(lexopt::Parser::from_args(line.split_whitespace()));
        assert_eq!(read("case llama-2-7b").unwrap().case, "llama-2-7b");
        assert_eq!(read("load --plimsoll p").unwrap().plimsoll, Path::new("p"));
        assert!(read("page --plimsoll p --planner d --wasm w --tools t").is_ok());
        assert!(read("engine --wasm w").is_ok());
        assert!(read("browser --said s --planner d --wasm w --tools t").is_ok());
        for line in ["", "load", "engine", "page --plimsoll p", "browser --said s", "case a b", "faster"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
