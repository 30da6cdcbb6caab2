//! `plimsoll estimate`: a scenario in, its estimate out.

mod jsonl;

use std::io::Write;

use clap::ValueEnum;
use plimsoll_core::estimate::{Run, Verdict, max_batch};
use plimsoll_core::{Estimate, Scenario};
use serde_json::Value;

use crate::exit::{self, Failure};
use crate::scenario::{Input, Overlay};
use crate::view::{self, Paint, Report};

const EXAMPLES: &str = "\
Examples:
  plimsoll estimate --model llama-3.2-1b --gpu rtx-5070-ti-laptop --batch 4
  plimsoll estimate --hf-config config.json --seq 2048 --lora-rank 16
  plimsoll estimate --family nbeats --set stacks=60 --batch 1024
  plimsoll estimate run.toml --checkpointing full --format json
  plimsoll estimate '?model=gpt2&gpu=h200&batch=8'
  plimsoll estimate --jsonl < scenarios.jsonl > estimates.jsonl

A scenario in TOML (JSON has the same shape; all but the model has a default):
  [model]
  catalog = \"llama-3.2-1b\"
  [input]
  batch = 4
  seq = 2048
  [training]
  precision = \"bf16-amp\"
  checkpointing = \"full\"
  [device]
  gpu = \"rtx-5070-ti-laptop\"

Exit codes: 0 it fits (or is tight), 1 it does not fit, 2 wrong usage or a
scenario that cannot be estimated, 3 a file cannot be read. With --jsonl: 0, or
2 when a line was bad.";

/// Say how much memory a run takes, why, and whether it fits the card
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,

    /// Read one JSON scenario a line (standard input, or FILE) and answer one
    /// JSON estimate a line; a bad line is answered {"error": ...}
    #[arg(long)]
    jsonl: bool,
}

/// How to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    // Plain comments: documented values would stretch `--help` to a paragraph an option.
    // For people.
    Text,
    // For programs.
    Json,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let overlay = Overlay::new(&args.input.flags)?;
    if args.jsonl {
        return jsonl::run(args.input.source.as_deref(), &overlay);
    }
    answer(args, &overlay).map_err(|failure| args.input.blame(&overlay, failure))
}

fn answer(args: &Args, overlay: &Overlay) -> Result<u8, Failure> {
    let value = args.input.value(overlay)?;
    let scenario = Scenario::from_value(&value)?;
    let run = Run::new(&scenario)?;
    let estimate = estimate(&run, &scenario)?;
    let text = match args.format {
        Format::Json => {
            let value = serde_json::to_value(&estimate).unwrap_or(Value::Null);
            format!("{value:#}\n")
        }
        Format::Text => {
            let timeline = run.timeline(TIMELINE_POINTS);
            let peak = timeline.points.get(timeline.peak).map(|point| run.alive_at(point.event));
            let report =
                Report { scenario: &scenario, estimate: &estimate, holdings: peak.as_deref().unwrap_or_default() };
            view::report(&report, Paint::for_stdout())
        }
    };
    let code = code_of(estimate.verdict);
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from) {
        // The verdict stands whether or not somebody read it to the end.
        Ok(()) | Err(Failure::Closed) => Ok(code),
        Err(failure) => Err(failure),
    }
}

/// The peak is always among the points; the rest is not drawn here.
const TIMELINE_POINTS: usize = 64;

/// The run's estimate with the largest batch filled in.
fn estimate(run: &Run, scenario: &Scenario) -> Result<Estimate, Failure> {
    let mut estimate = run.estimate().clone();
    estimate.max_batch = Some(max_batch(scenario)?);
    Ok(estimate)
}

const fn code_of(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Fits | Verdict::Tight => exit::OK,
        Verdict::DoesNotFit => exit::DOES_NOT_FIT,
    }
}
