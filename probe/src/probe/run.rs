//! `plimsoll probe run`: one scenario, measured once.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use plimsoll_core::measurement::{self, Outcome};
use plimsoll_core::scenario::Link;
use plimsoll_core::{Error, Measurement};
use url::Url;

use super::progress::Progress;
use super::report;
use super::{Where, check_mode};
use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::records::{self, Store};
use crate::scenario::Input;
use crate::session::{self, Request};
use crate::view::Paint;

const EXAMPLES: &str = "\
Examples:
  plimsoll probe run --model gpt2 --batch 4 --precision fp16-amp
  plimsoll probe run run.toml --limit 11GiB --out record.json
  plimsoll probe run --family nbeats --batch 1024 --target-utilization 85
  plimsoll probe run '?model=gpt2&batch=8' --device cpu --format json
  plimsoll probe run --model gpt2 --mode inference --seq 512 --max-new-tokens 64
  plimsoll probe run --model gpt2 --gpus 2 --strategy fsdp2

When memory runs out (the card's or --limit's), the micro-batch is halved and
the accumulation doubled, so that the effective batch stays, until it runs; in
inference the batch is halved. On several cards (--gpus) torchrun starts a
process for each, all are measured, and nothing is halved.
Ctrl-C ends the worker and keeps what was measured; twice leaves at once.

Exit codes: 0 it was measured, 1 it did not fit (not even with one sample, or
as it is with --no-adapt), 2 wrong usage or a bad scenario, 3 no Python or
PyTorch, a busy card, or a worker that failed, 130 stopped by Ctrl-C.";

/// Measure one scenario and lay the result beside its estimate
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    place: Where,

    /// Raise the micro-batch while the card is used less than this, in percent,
    /// and 90 % of the memory is not passed
    #[arg(long, value_name = "PERCENT", help_heading = "Measuring",
        value_parser = clap::value_parser!(u8).range(1..=100))]
    target_utilization: Option<u8>,

    /// Do not halve the micro-batch when memory runs out
    #[arg(long, help_heading = "Measuring")]
    no_adapt: bool,

    /// Write a memory snapshot, to be opened at pytorch.org/memory_viz
    #[arg(long, value_name = "PATH", help_heading = "Measuring")]
    snapshot: Option<PathBuf>,

    /// Write a profiler trace, to be opened at ui.perfetto.dev
    #[arg(long, value_name = "PATH", help_heading = "Measuring")]
    trace: Option<PathBuf>,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT", help_heading = "Answer")]
    format: Format,

    /// Write the measurement's record (JSON); it is kept among your own
    /// records in any case
    #[arg(long, value_name = "PATH", help_heading = "Answer")]
    out: Option<PathBuf>,

    /// Where your planner is, such as http://127.0.0.1:7070/ of `plimsoll
    /// serve`: a link at the end opens the measurement there
    #[arg(long, value_name = "URL", help_heading = "Answer", value_parser = planner)]
    planner: Option<Url>,

    /// Do not tell phases apart: to measure what that costs
    #[arg(long, hide = true)]
    no_phases: bool,

    /// Do not sample memory and utilisation: to measure what that costs
    #[arg(long, hide = true)]
    no_sampling: bool,
}

impl Args {
    /// Refuses what says something of a single card.
    fn check_several(&self) -> Result<(), Error> {
        let one = "is for one card, and the scenario has several";
        if self.target_utilization.is_some() {
            return Err(Error::new("--target-utilization", one, "leave it out"));
        }
        if self.place.index.is_some() {
            let hint = "set CUDA_VISIBLE_DEVICES to the cards that are meant: 0,2";
            return Err(Error::new("--index", one, hint));
        }
        Ok(())
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    if let Some(out) = &args.out {
        check_writable(out)?;
    }
    let mut asked = args.input.to_measure()?;
    asked.scenario = args.place.with_steps(asked.scenario);
    check_mode(&asked.scenario)?;
    if asked.scenario.parallel.gpus > 1 {
        args.check_several()?;
    }
    let mut request = Request::new(&asked.scenario);
    args.place.apply(&mut request);
    request.target_utilization = args.target_utilization;
    request.adapt = !args.no_adapt;
    request.snapshot = args.snapshot.as_deref();
    request.trace = args.trace.as_deref();
    request.phases = !args.no_phases;
    request.sampling = !args.no_sampling;
    let mut progress = Progress::new();
    let record = session::measure(&request, &mut progress)?;
    drop(progress);

    // First of all it is kept.
    if let Some(out) = &args.out {
        records::write(out, &record)?;
    }
    keep(&record);
    let answer = match args.format {
        Format::Json => records::text(&record),
        Format::Text => report::report(&record, &asked, Paint::for_stdout()),
    };
    let code = code_of(&record);
    let mut out = anstream::stdout().lock();
    match out.write_all(answer.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from) {
        Ok(()) | Err(Failure::Closed) => {}
        Err(failure) => return Err(failure),
    }
    // Below the answer: it is longer than a screen.
    if let Some(planner) = args.planner.as_ref().filter(|_| !record.device.hollow) {
        point_to(&record, planner);
    }
    Ok(code)
}

/// Keeps the record on this machine; that it cannot be kept is no reason to lose the answer.
fn keep(record: &Measurement) {
    if !records::tells(record) {
        return;
    }
    let paint = Paint::for_stderr();
    let line = match Store::local().and_then(|store| store.keep(record)) {
        Ok(path) => paint.quiet(&format!("Kept as {}", path.display())),
        Err(failure) => format!("{} {}", paint.strong("note:"), failure.problem()),
    };
    // Nobody is left to tell when standard error is gone.
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// Prints the link that opens the planner on what ran, with the measurement behind `#`, where no server sees it.
fn point_to(record: &Measurement, planner: &Url) {
    let (Ok(scenario), Some(packed)) = (record.as_run(), record.packed()) else { return };
    let query = Link::encode(&scenario);
    let sign = if query.contains('#') { '&' } else { '#' };
    let base = planner.as_str();
    let paint = Paint::for_stderr();
    let text = format!("In the planner: {base}{query}{sign}{}={packed}", measurement::PART);
    // Nobody is left to tell when standard error is gone.
    let _ = writeln!(anstream::stderr(), "{}", paint.quiet(&text));
}

/// An address one can put a query behind.
fn planner(text: &str) -> Result<Url, String> {
    let mut url = Url::parse(text).map_err(|error| format!("{error}; write it like http://127.0.0.1:7070/"))?;
    if !matches!(url.scheme(), "http" | "https" | "file") {
        return Err("write an http or https address, like http://127.0.0.1:7070/".to_owned());
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// How a measurement ends the process.
pub fn code_of(record: &Measurement) -> u8 {
    let outcomes = || record.attempts.iter().map(|a| a.outcome);
    if outcomes().any(|o| o == Outcome::Interrupted) {
        return exit::INTERRUPTED;
    }
    match outcomes().next_back() {
        Some(Outcome::Failed) | None => exit::ENVIRONMENT,
        _ if outcomes().any(|o| o == Outcome::Finished) => exit::OK,
        _ => exit::DOES_NOT_FIT,
    }
}

/// Before anything is measured for minutes: whether its record can be written.
fn check_writable(out: &Path) -> Result<(), Failure> {
    let parent = folder(out);
    tempfile::Builder::new().prefix(".plimsoll-").tempfile_in(parent).map_err(|error| unwritable(out, &error))?;
    if out.is_dir() {
        return Err(unwritable(out, &io::Error::other("it is a folder")));
    }
    Ok(())
}

fn folder(out: &Path) -> &Path {
    match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn unwritable(out: &Path, error: &io::Error) -> Failure {
    Failure::Environment {
        problem: format!("cannot write {}: {error}", out.display()),
        hint: "give --out a file in a folder that exists and can be written to".to_owned(),
    }
}
