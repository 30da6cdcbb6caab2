//! Runs a target without libFuzzer: over its corpus, and over what becomes of that when it is changed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use crate::chance::Chance;
use crate::change::Corpus;
use crate::{Target, target};

/// How often each file is changed when a program is run by hand.
const ROUNDS: u64 = 20_000;

/// What the inputs of [`run`] are made with.
const SEED: u64 = 0x5eed;

/// The program of a target: runs the files that it is given, or else the corpus with changes.
pub fn main(name: &str) -> ExitCode {
    let files: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let done = match target(name) {
        Some(target) if files.is_empty() => run(target, ROUNDS),
        Some(target) => replay(target, &files),
        None => Err(io::Error::other("there is no such target")),
    };
    match done {
        Ok(inputs) => {
            println!("{name}: {inputs} inputs");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a target over every file of its corpus and so many hostile inputs made of each; the same ones every time. Tells how many
/// inputs that were. An input that panics lies in a file then, whose name is printed.
///
/// # Errors
/// The corpus cannot be read.
pub fn run(target: &Target, rounds: u64) -> io::Result<u64> {
    let corpus = Corpus::read(target.name, target.grammar)?;
    let mut inputs = 0;
    for seed in 0..corpus.len() {
        one(target, corpus.good(seed));
        for round in 0..rounds {
            one(target, &corpus.hostile_of(seed, &mut Chance::of(SEED, round)));
        }
        inputs += 1 + rounds;
    }
    Ok(inputs)
}

fn one(target: &Target, input: &[u8]) {
    let kept = Kept { name: target.name, input };
    (target.run)(input);
    drop(kept);
}

fn replay(target: &Target, files: &[PathBuf]) -> io::Result<u64> {
    for file in files {
        (target.run)(&fs::read(file)?);
    }
    Ok(files.len() as u64)
}

/// Where what breaks is written, unless a folder is named.
pub fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/hostile")
}

/// The input that runs; written to a file when it panics.
struct Kept<'a> {
    name: &'a str,
    input: &'a [u8],
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let path = env::temp_dir().join(format!("plimsoll-{}-{}", self.name, std::process::id()));
        match fs::write(&path, self.input) {
            Ok(()) => eprintln!("{}: the input is in {}", self.name, path.display()),
            Err(error) => eprintln!("{}: the input cannot be kept: {error}", self.name),
        }
    }
}
