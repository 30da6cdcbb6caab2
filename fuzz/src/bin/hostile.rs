//! Hostile inputs of every target, counted and watched: `cargo run --profile hostile --package plimsoll-fuzz --bin hostile`.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, io};

use lexopt::prelude::*;
use plimsoll_fuzz::chance::Chance;
use plimsoll_fuzz::change::Corpus;
use plimsoll_fuzz::count::Counter;
use plimsoll_fuzz::{TARGETS, harness};

const USAGE: &str = "\
Makes hostile inputs and watches what they cost: none may panic, work over 2 s, or take over 512 MiB.

Usage: hostile [--inputs N] [--seconds S] [--seed N] [--from N] [--keep DIR] [TARGET...]

  --inputs N    how many in all, of all targets together (default 100000);
                beyond 600,000 in several processes, each with the next seed
  --seconds S   no longer than this, however many they were
  --seed N      which ones; the same number makes the same ones (default 1)
  --from N      from this number on, of every target
  --print       print those inputs, and do not run them
  --keep DIR    where those are written that break (default target/hostile)
";

/// Inputs of one target before the next one has its turn, of each hundred of its share.
const TURN: u64 = 10;

/// Most inputs of one process. Memory is the process's, and what a large input leaves behind in pieces counts for those after it: after
/// six million, inputs that take 290 MiB by themselves were over the limit.
const PROCESS: u64 = 600_000;

/// How often it is told how far it is.
const TOLD: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Options {
    inputs: u64,
    time: Option<Duration>,
    seed: u64,
    from: u64,
    keep: PathBuf,
    print: bool,
    targets: Vec<String>,
}

fn main() -> ExitCode {
    match parse(lexopt::Parser::from_env()) {
        Ok(Some(options)) => match if options.is_long() { runs(&options) } else { run(&options) } {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("hostile: {error}");
                ExitCode::FAILURE
            }
        },
        Ok(None) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hostile: {error}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut parser: lexopt::Parser) -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options {
        inputs: 100_000,
        time: None,
        seed: 1,
        from: 0,
        keep: harness::kept(),
        print: false,
        targets: Vec::new(),
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(None),
            Long("inputs") => options.inputs = parser.value()?.parse()?,
            Long("seconds") => options.time = Some(Duration::from_secs(parser.value()?.parse()?)),
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("from") => options.from = parser.value()?.parse()?,
            Long("print") => options.print = true,
            Long("keep") => options.keep = parser.value()?.into(),
            Value(name) => options.targets.push(name.string()?),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(options))
}

impl Options {
    /// Whether one process is not enough.
    const fn is_long(&self) -> bool {
        self.inputs > PROCESS && !self.print
    }
}

/// Whether nothing broke in any of several processes, one after the other; each makes its inputs with the next seed.
fn runs(options: &Options) -> io::Result<bool> {
    let start = Instant::now();
    let (mut left, mut seed, mut clean) = (options.inputs, options.seed, true);
    while left > 0 {
        let mut process = Command::new(env::current_exe()?);
        if let Some(time) = options.time {
            let Some(rest) = time.checked_sub(start.elapsed()).filter(|rest| rest.as_secs() > 0) else { break };
            process.args(["--seconds", &rest.as_secs().to_string()]);
        }
        let inputs = left.min(PROCESS);
        process.args([
            "--inputs",
            &inputs.to_string(),
            "--seed",
            &seed.to_string(),
            "--from",
            &options.from.to_string(),
        ]);
        process.arg("--keep").arg(&options.keep).args(&options.targets);
        println!("seed {seed}:");
        clean &= process.status()?.success();
        left -= inputs;
        seed = seed.wrapping_add(1);
    }
    Ok(clean)
}

/// Whether nothing broke.
fn run(options: &Options) -> io::Result<bool> {
    let chosen = || {
        TARGETS.iter().filter(|target| options.targets.is_empty() || options.targets.iter().any(|n| n == target.name))
    };
    let whole: u64 = chosen().map(|target| target.share).sum();
    if whole == 0 {
        return Err(io::Error::other("there is no such target"));
    }
    let mut counters = Vec::new();
    for target in chosen() {
        // Rounded up, so that all of them are no fewer than were asked for.
        let due = (u128::from(options.inputs) * u128::from(target.share)).div_ceil(u128::from(whole));
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        counters.push((target, due, Counter::new(target, options.seed, options.from, &options.keep)?));
    }
    if options.print {
        for (target, due, _) in &counters {
            let corpus = Corpus::read(target.name, target.grammar)?;
            for number in (options.from..).take(usize::try_from(*due).unwrap_or(usize::MAX)) {
                println!("{}", String::from_utf8_lossy(&corpus.hostile(&mut Chance::of(options.seed, number))));
            }
        }
        return Ok(true);
    }
    let (start, mut told) = (Instant::now(), Instant::now());
    let late = || options.time.is_some_and(|time| start.elapsed() > time);
    loop {
        let mut more = false;
        for (target, due, counter) in &mut counters {
            let left = due.saturating_sub(counter.tally().inputs);
            counter.run(left.min(target.share * TURN));
            more |= left > target.share * TURN;
        }
        if !more || late() {
            break;
        }
        if told.elapsed() > TOLD {
            told = Instant::now();
            for (target, _, counter) in &counters {
                println!("{} s: {}: {}", start.elapsed().as_secs(), target.name, counter.tally());
            }
        }
    }
    let mut inputs = 0;
    for (target, _, counter) in &counters {
        println!("{}: {}", target.name, counter.tally());
        inputs += counter.tally().inputs;
    }
    println!("{inputs} hostile inputs in {} s", start.elapsed().as_secs());
    Ok(counters.iter().all(|(_, _, counter)| counter.tally().is_clean()))
}
