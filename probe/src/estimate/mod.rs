//! `plimsoll estimate`: a scenario in, its estimate out.

mod asked;
mod axes;
mod jsonl;

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use plimsoll_core::estimate::fit::{Allowed, fit};
use plimsoll_core::estimate::{Run, Verdict, with_largest_batch};
use plimsoll_core::solve::{self, EFFORT};
use plimsoll_core::{Error, Estimate, Scenario, summary};
use serde_json::{Value, json};

use crate::exit::{self, Failure};
use crate::ledger_file;
use crate::scenario::{Input, Overlay};
use crate::view::{self, Paint, Report};

const EXAMPLES: &str = "\
Examples:
  plimsoll estimate --model llama-3.2-1b --gpu rtx-5070-ti-laptop --batch 4
  plimsoll estimate --hf-config config.json --seq 2048 --lora-rank 16
  plimsoll estimate --family nbeats --set stacks=60 --batch 1024
  plimsoll estimate run.toml --checkpointing full --format json
  plimsoll estimate '?model=gpt2&gpu=h200&batch=8'
  plimsoll estimate run.toml --explain
  plimsoll estimate run.toml --format svg > verdict.svg
  plimsoll estimate run.toml --ledger run.json.gz
  plimsoll estimate run.toml --grid 1-16x512,1024,2048
  plimsoll estimate --family resnet --gpu rtx-5070-ti --ask-cudnn
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
2 when a line was bad; with --grid: 0.";

/// Say how much memory a run takes, why, and whether it fits the card
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// How to answer: for people, for programs, as a note or as a picture of the
    /// verdict for an issue, a page or a message
    #[arg(long, value_enum, default_value_t = Written::Text, value_name = "FORMAT")]
    format: Written,

    /// Read one JSON scenario a line (standard input, or FILE) and answer one
    /// JSON estimate a line; a bad line is answered {"error": ...}
    #[arg(long)]
    jsonl: bool,

    /// Attribute every byte at the peak: layer by layer, to category, module,
    /// operation, shape and type
    #[arg(long, conflicts_with_all = ["jsonl", "grid"])]
    explain: bool,

    /// Write the ledger too, every birth and death of a storage and every kernel,
    /// as JSON, or compressed where FILE ends in .gz; `plimsoll inspect` reads it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["jsonl", "grid"])]
    ledger: Option<PathBuf>,

    /// Estimate batches by sequences: 1,2,4x512,1024 or 1-64x256-8192/256, or so
    /// many by so many, 64x32; around the scenario when nothing follows
    #[arg(long, value_name = "BATCHES x SEQS", num_args = 0..=1, default_missing_value = "", conflicts_with = "jsonl")]
    grid: Option<String>,

    /// Ask the cuDNN of a Python's PyTorch what it takes for each convolution on
    /// such a card; the machine needs none
    #[arg(long, conflicts_with_all = ["jsonl", "grid"])]
    ask_cudnn: bool,

    /// With --ask-cudnn: the Python; without it the active environment's, else
    /// the first in PATH that has PyTorch
    #[arg(long, value_name = "PATH", requires = "ask_cudnn")]
    python: Option<PathBuf>,
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

/// How an estimate is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Written {
    Text,
    Json,
    // A note for an issue or a page.
    Markdown,
    // The verdict as a picture.
    Svg,
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
    if let Some(sizes) = &args.grid {
        return print(&grid(&scenario, sizes, args.format)?, exit::OK);
    }
    let (run, largest) =
        if args.ask_cudnn { asked::run(&scenario, args.python.as_deref())? } else { (Run::new(&scenario)?, None) };
    let run = run.with_falling();
    if let Some(path) = &args.ledger {
        ledger_file::write(path, run.ledger())?;
    }
    let estimate = match largest {
        Some(batch) => Estimate { max_batch: Some(batch), ..run.estimate().clone() },
        None => estimate(&run, &scenario)?,
    };
    let explanation = args.explain.then(|| run.explain());
    let text = match args.format {
        Written::Json => {
            let mut value = serde_json::to_value(&estimate).unwrap_or(Value::Null);
            if let (Some(explanation), Some(object)) = (&explanation, value.as_object_mut()) {
                object.insert("explain".to_owned(), serde_json::to_value(explanation).unwrap_or(Value::Null));
            }
            format!("{value:#}\n")
        }
        Written::Markdown | Written::Svg if args.explain => return Err(one_estimate("explain")),
        Written::Markdown => summary::markdown(&scenario, &estimate),
        Written::Svg => summary::picture(&scenario, &estimate),
        Written::Text => {
            let timeline = run.timeline(TIMELINE_POINTS);
            let peak = timeline.points.get(timeline.peak).map(|point| run.alive_at(point.event));
            let report = Report {
                scenario: &scenario,
                estimate: &estimate,
                holdings: peak.as_deref().unwrap_or_default(),
                explanation: explanation.as_ref(),
            };
            let paint = Paint::for_stdout();
            let fit = (estimate.verdict != Verdict::Fits).then(|| fit(&scenario, Allowed::default()));
            view::report(&report, paint)
                + &fit.and_then(Result::ok).map_or_else(String::new, |fit| view::remedies(&fit, paint))
        }
    };
    print(&text, code_of(estimate.verdict))
}

/// Writes an answer; the code stands whoever reads it.
pub fn print(text: &str, code: u8) -> Result<u8, Failure> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from) {
        // The verdict stands whether or not somebody read it to the end.
        Ok(()) | Err(Failure::Closed) => Ok(code),
        Err(failure) => Err(failure),
    }
}

/// A note or a picture says one verdict, and no more.
fn one_estimate(flag: &str) -> Failure {
    let problem = format!("markdown and svg say one verdict, which --{flag} is more than");
    Failure::from(Error::new("format", problem, format!("leave --{flag} out, or take --format text or json")))
}

/// The answer to `--grid`.
fn grid(scenario: &Scenario, sizes: &str, format: Written) -> Result<String, Failure> {
    let (batches, seqs) = axes::axes(sizes, scenario)?;
    let grid = solve::grid(scenario, &batches, &seqs, EFFORT)?;
    Ok(match format {
        Written::Json => {
            let value = json!({ "schema": 1, "scenario": scenario.to_value(), "grid": grid });
            format!("{value:#}\n")
        }
        Written::Text => view::grid(scenario, &grid, view::columns(), Paint::for_stdout()),
        Written::Markdown | Written::Svg => return Err(one_estimate("grid")),
    })
}

/// The peak is always among the points; the rest is not drawn here.
const TIMELINE_POINTS: usize = 64;

/// The run's estimate with the largest batch filled in.
fn estimate(run: &Run, scenario: &Scenario) -> Result<Estimate, Failure> {
    Ok(with_largest_batch(run.estimate().clone(), scenario)?)
}

const fn code_of(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Fits | Verdict::Tight => exit::OK,
        Verdict::DoesNotFit => exit::DOES_NOT_FIT,
    }
}
