//! Makes the planner's files: joins its WebAssembly to JavaScript, names what it is made of after its content, and writes
//! the page that loads it.
//!
//! `plimsoll-bundle --wasm target/wasm32-unknown-unknown/quick/planner.wasm --out web/dist`. It runs no compiler: whoever
//! calls it has cargo build the WebAssembly first. `cargo xtask serve` does, and so does the build script of the server.
#![forbid(unsafe_code)]

mod bindgen;
mod compress;
mod embed;
mod files;
mod halves;
mod hulls;
mod later;
mod measurements;
mod offline;
mod page;
mod script;
mod stamp;
mod watched;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use lexopt::prelude::*;

use bindgen::{Names, Planner};
use compress::Effort;
use files::Files;
use halves::Halves;
use later::Later;
use stamp::Stamp;

const USAGE: &str = "\
Makes the planner's files out of its WebAssembly, web/index.html and what that names.

Usage: plimsoll-bundle --wasm FILE --out DIRECTORY [--release] [--halves] [--watched FILE] [--wasm-opt PROGRAM] [--embed FILE]

  --wasm FILE           planner.wasm as cargo built it
  --out DIRECTORY       where the files go; what was there is replaced
  --release             as small as it gets: in two halves without names, compressed as hard as it goes
  --halves              in two: what is called while the page opens, and the rest, which follows
  --watched FILE        in one that notes which functions are called, and into FILE what they are
  --wasm-opt PROGRAM    the wasm-opt to run over it
  --embed FILE          also write a Rust expression that includes the files, for a build script
";

/// What was asked for.
#[derive(Debug)]
struct Options {
    wasm: PathBuf,
    out: PathBuf,
    release: bool,
    halves: bool,
    watched: Option<PathBuf>,
    wasm_opt: Option<PathBuf>,
    embed: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match parse(lexopt::Parser::from_env()) {
        Ok(Some(options)) => bundle(&options),
        Ok(None) => {
            print!("{USAGE}");
            Ok(())
        }
        Err(error) => {
            eprintln!("plimsoll-bundle: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll-bundle: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut parser: lexopt::Parser) -> Result<Option<Options>, lexopt::Error> {
    let (mut wasm, mut out, mut wasm_opt, mut embed, mut watched) = (None, None, None, None, None);
    let (mut release, mut halves) = (false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(None),
            Long("wasm") => wasm = Some(parser.value()?.into()),
            Long("out") => out = Some(parser.value()?.into()),
            Long("release") => release = true,
            Long("halves") => halves = true,
            Long("watched") => watched = Some(parser.value()?.into()),
            Long("wasm-opt") => wasm_opt = Some(parser.value()?.into()),
            Long("embed") => embed = Some(parser.value()?.into()),
            other => return Err(other.unexpected()),
        }
    }
    let (wasm, out) = (wasm.ok_or("--wasm is missing")?, out.ok_or("--out is missing")?);
    Ok(Some(Options { wasm, out, release, halves, watched, wasm_opt, embed }))
}

/// The planner's sources.
fn web() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".."))
}

fn bundle(options: &Options) -> Result<()> {
    let records = web().join("../data/measurements");
    let hulls = web().join("../data/hulls");
    let inputs = [
        &options.wasm,
        &web().join("index.html"),
        &web().join("styles"),
        &web().join("assets"),
        &records,
        &hulls,
        &list(),
    ];
    let stamp = Stamp::of(&options.wasm, format!("{options:?}"));
    if stamp.holds(&inputs)? {
        return Ok(());
    }
    let made = make(options, &records, &hulls)?;
    let written = made.replace(&options.out)?;
    if let Some(file) = &options.embed {
        fs::write(file, embed::expression(&made, &options.out)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let (plain, sent) = made.sizes();
    println!("the planner: {} KB, {} KB as sent", plain.div_ceil(1000), sent.div_ceil(1000));
    stamp.set(written.iter().chain(&options.embed).chain(&options.watched))
}

/// Everything that is written, in memory.
fn make(options: &Options, records: &Path, hulls: &Path) -> Result<Files> {
    let mut files = Files::default();
    let planner = planner(options, &mut files)?;
    let index = fs::read_to_string(web().join("index.html")).context("cannot read web/index.html")?;
    let page = page::write(&index, web(), planner, &mut files)?;
    let served = plimsoll_web::served::opening().map_err(|error| anyhow!("no verdict to serve: {error}"))?;
    files.add("index.html", page::answer(&page, &served)?)?;
    measurements::ship(records, &mut files)?;
    hulls::ship(hulls, &mut files)?;
    let script = fs::read_to_string(web().join("assets").join(offline::NAME))
        .with_context(|| format!("cannot read web/assets/{}", offline::NAME))?;
    files.add(offline::NAME, offline::write(&script, &files)?)?;
    compress::beside(&mut files, if options.release { Effort::Most } else { Effort::Little })?;
    Ok(files)
}

/// The functions that wait.
fn list() -> PathBuf {
    web().join("bundle").join(later::NAME)
}

/// The planner's script and what it starts; what it fetches later is added to the files.
fn planner(options: &Options, files: &mut Files) -> Result<Planner> {
    let halves = options.release || options.halves;
    let names = if halves || options.watched.is_some() { Names::Mangled } else { Names::Readable };
    let whole = bindgen::join(&options.wasm, names, options.wasm_opt.as_deref())?;
    if let Some(file) = &options.watched {
        let watched = watched::watched(&whole.wasm)?;
        fs::write(file, watched.marks).with_context(|| format!("cannot write {}", file.display()))?;
        return Ok(Planner { script: script::with_calls(&whole.script)?, wasm: watched.wasm });
    }
    if !halves {
        return Ok(whole);
    }
    let list = list();
    let text = fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let Halves { first, rest } = halves::cut(&whole.wasm, &Later::read(&text)?, !options.release)?;
    let rest = files.add_hashed("rest", "wasm", rest)?;
    Ok(Planner { script: script::with_rest(&whole.script, &rest)?, wasm: first })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Options>, lexopt::Error> {
        parse(lexopt::Parser::from_args(line.split_whitespace()))
    }

    #[test]
    fn what_it_needs_is_asked_for() {
        let options = read("--wasm a.wasm --out dist --release").unwrap().unwrap();
        assert!(options.release && !options.halves && options.wasm_opt.is_none() && options.out == Path::new("dist"));
        assert!(read("--help").unwrap().is_none());
        for line in ["", "--wasm a.wasm", "--out dist", "--wasm a --out b c", "--wasm a --out b --releas"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
