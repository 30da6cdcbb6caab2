//! Runs a target without libFuzzer: over its corpus, and over what becomes of that when it is changed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

/// How often each file is changed when a program is run by hand.
const ROUNDS: u32 = 20_000;

/// Words and figures at which readers go wrong.
const TOKENS: [&str; 16] = [
    "null",
    "true",
    "0",
    "-1",
    "1e308",
    "18446744073709551616",
    "9007199254740993",
    "NaN",
    "\"\"",
    "[]",
    "{}",
    "\\u0000",
    "%00",
    "\u{feff}",
    "&m=",
    "#m=",
];

/// The program of a target: runs the files that it is given, or else the corpus with changes.
pub fn main(name: &str, target: fn(&[u8])) -> ExitCode {
    let files: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let done = if files.is_empty() { run(name, target, ROUNDS) } else { replay(&files, target) };
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

/// Runs a target over every file of its corpus and so many changes of each; the same ones every time. Tells how many inputs that
/// were. An input that panics lies in a file then, whose name is printed.
///
/// # Errors
/// The corpus cannot be read.
pub fn run(name: &str, target: fn(&[u8]), rounds: u32) -> io::Result<u32> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name))? {
        files.push(entry?.path());
    }
    files.sort();
    let seeds = files.iter().map(fs::read).collect::<io::Result<Vec<_>>>()?;
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let mut inputs = 0;
    for seed in &seeds {
        let mut input = seed.clone();
        for round in 0..=rounds {
            inputs += 1;
            let kept = Kept { name, input: &input };
            target(&input);
            drop(kept);
            // A few changes one upon the other, then again from what is whole: most of it should still be readable.
            if round % 4 == 0 {
                input.clone_from(seed);
            }
            chance.change(&mut input, &seeds);
        }
    }
    Ok(inputs)
}

fn replay(files: &[PathBuf], target: fn(&[u8])) -> io::Result<u32> {
    for file in files {
        target(&fs::read(file)?);
    }
    Ok(u32::try_from(files.len()).unwrap_or(u32::MAX))
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

/// Numbers that look like chance and are the same every time (xorshift64*, Vigna 2016).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from(number).unwrap_or_default() % limit.max(1)
    }

    /// Changes an input in one place.
    fn change(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let end = input.len().min(at + self.below(16));
        match self.below(6) {
            0 => {
                let token = TOKENS.get(self.below(TOKENS.len())).copied().unwrap_or_default();
                input.splice(at..end, token.bytes());
            }
            1 => drop(input.drain(at..end)),
            2 => {
                let part = input.get(at..end).unwrap_or_default().to_vec();
                input.splice(at..at, part);
            }
            3 => {
                let bit = 1 << self.below(8);
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= bit;
                }
            }
            4 => {
                // A digit elsewhere is another figure in its place.
                let digit = b'0' + u8::try_from(self.below(10)).unwrap_or_default();
                let digits: Vec<usize> =
                    (0..input.len()).filter(|&i| input.get(i).is_some_and(u8::is_ascii_digit)).collect();
                if let Some(byte) = digits.get(self.below(digits.len())).and_then(|&i| input.get_mut(i)) {
                    *byte = digit;
                }
            }
            _ => {
                let other = seeds.get(self.below(seeds.len())).map_or(&[][..], Vec::as_slice);
                let from = self.below(other.len());
                let part = other.get(from..other.len().min(from + 64)).unwrap_or_default();
                input.splice(at..end, part.iter().copied());
            }
        }
    }
}
