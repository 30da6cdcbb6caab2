//! `plimsoll inspect`: what a ledger says, a memory snapshot of PyTorch's, or a hull.

use std::fs::File;
use std::io::{BufReader, Read, Write as _};
use std::path::{Path, PathBuf};

use plimsoll_core::estimate::{Against, Reading, Run};
use plimsoll_core::ledger::hull::{self, Hull};
use plimsoll_core::snapshot::{self, Course, Device, Snapshot, Summary};
use plimsoll_core::summary::Recorded;
use plimsoll_core::{Error, Scenario};
use serde_json::{Map, Value, json};

use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::ledger_file;
use crate::scenario::{Flags, Input, Overlay};
use crate::view::{self, Paint, Snapped};

const EXAMPLES: &str = "\
Examples:
  plimsoll estimate run.toml --ledger run.json.gz
  plimsoll inspect run.json.gz
  plimsoll inspect run.json.gz --format json
  plimsoll inspect snapshot.pickle
  plimsoll inspect snapshot.pickle --with run.toml
  plimsoll inspect net.hull

A snapshot is what PyTorch writes of a real run:
  torch.cuda.memory._record_memory_history()
  ...                                          three steps of the training
  torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")

Exit codes: 0, 2 a file that is none of them, 3 a file that cannot be read.";

/// Read a ledger that `estimate --ledger` wrote, or a memory snapshot of PyTorch's:
/// its peak, the memory over time, and who holds the peak; or what a hull is
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The ledger, compressed or not, the snapshot, or the hull; nothing in it is run
    file: PathBuf,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,

    /// The scenario of the run that a snapshot is of, to lay its estimate beside
    /// it: a file or a share link
    #[arg(long, value_name = "FILE | LINK")]
    with: Option<String>,

    /// Which card of a snapshot
    #[arg(long, value_name = "N", help = "Which card of a snapshot [default: the one with the longest history]")]
    card: Option<u32>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let first = beginning(&args.file)?;
    let text = if first.starts_with(hull::MAGIC) {
        of_hull(args)?
    } else if first.first() == Some(&snapshot::FIRST) {
        of_snapshot(args)?
    } else {
        of_ledger(args)?
    };
    anstream::stdout().lock().write_all(text.as_bytes())?;
    Ok(exit::OK)
}

/// What only a snapshot can be asked.
fn no_snapshot(args: &Args) -> Result<(), Failure> {
    if args.with.is_some() || args.card.is_some() {
        let hint = "give a file that torch.cuda.memory._dump_snapshot wrote, or leave --with and --card out";
        return Err(Error::new("snapshot", "--with and --card are for snapshots", hint).into());
    }
    Ok(())
}

fn of_hull(args: &Args) -> Result<String, Failure> {
    no_snapshot(args)?;
    let bytes = bytes(&args.file)?;
    let hull =
        Hull::from_bytes(&bytes).map_err(|error| Failure::from(error).in_file(&args.file.display().to_string()))?;
    let lines = Recorded::of(&hull).lines;
    Ok(match args.format {
        Format::Json => {
            let key = |name: &str| name.to_lowercase().replace(' ', "_");
            let lines: Map<String, Value> = lines.into_iter().map(|(name, says)| (key(name), says.into())).collect();
            format!("{:#}\n", Value::Object(lines))
        }
        Format::Text => view::recorded(&lines, Paint::for_stdout()),
    })
}

fn of_ledger(args: &Args) -> Result<String, Failure> {
    no_snapshot(args)?;
    let reading = Reading::new(ledger_file::read(&args.file)?);
    Ok(match args.format {
        Format::Json => format!("{:#}\n", serde_json::to_value(reading.summary()).unwrap_or(Value::Null)),
        Format::Text => view::reading(&reading, Paint::for_stdout()),
    })
}

fn of_snapshot(args: &Args) -> Result<String, Failure> {
    let name = args.file.display().to_string();
    let bytes = bytes(&args.file)?;
    let snapshot = Snapshot::read(&bytes).map_err(|error| Failure::from(error).in_file(&name))?;
    drop(bytes);
    let device = card(&snapshot, args.card).map_err(|error| Failure::from(error).in_file(&name))?;
    let course = Course::of(device);
    let summary = Summary::of(&snapshot, device, &course);
    let against = match &args.with {
        Some(scenario) => Some(Against::new(&Run::new(&self::scenario(scenario)?)?, &snapshot, &course)),
        None => None,
    };
    Ok(match args.format {
        Format::Json => {
            let mut value = serde_json::to_value(&summary).unwrap_or(Value::Null);
            if let Some(against) = against {
                value["against"] = json!(against);
            }
            format!("{value:#}\n")
        }
        Format::Text => {
            let cards = snapshot.devices.len();
            let snapped = Snapped { summary: &summary, course: &course, cards, against: against.as_ref() };
            view::snapshot(&snapped, Paint::for_stdout())
        }
    })
}

fn card(snapshot: &Snapshot, wanted: Option<u32>) -> Result<&Device, Error> {
    let found = match wanted {
        Some(index) => snapshot.devices.iter().find(|device| device.index == index),
        None => snapshot.busiest(),
    };
    found.ok_or_else(|| {
        let there: Vec<String> = snapshot.devices.iter().map(|device| device.index.to_string()).collect();
        match (&there[..], wanted) {
            ([], _) => Error::new("snapshot", "it holds no memory of any card", "dump it while the tensors are there"),
            (_, wanted) => Error::new(
                "snapshot",
                format!("it has no card {}", wanted.unwrap_or(0)),
                format!("take one of {}", there.join(", ")),
            ),
        }
    })
}

fn scenario(source: &str) -> Result<Scenario, Failure> {
    let input = Input { source: Some(source.to_owned()), ..Input::default() };
    let overlay = Overlay::new(&Flags::default())?;
    let read = || Ok(Scenario::from_value(&input.value(&overlay)?)?);
    read().map_err(|failure| input.blame(&overlay, failure))
}

/// The first bytes, which say what it is; none of what cannot be unpacked.
fn beginning(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut first = Vec::new();
    let _ = open(path)?.take(hull::MAGIC.len() as u64).read_to_end(&mut first);
    Ok(first)
}

/// The file, up to what is read of one.
fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let got = open(path)?.take(snapshot::MOST_BYTES as u64 + 1).read_to_end(&mut bytes);
    got.map(|_| bytes).map_err(|problem| unreadable(path, &problem))
}

/// Of what was compressed, as it was before.
fn open(path: &Path) -> Result<impl Read, Failure> {
    let file = File::open(path).and_then(|file| ledger_file::unpacked(BufReader::new(file)));
    file.map_err(|problem| unreadable(path, &problem))
}

fn unreadable(path: &Path, problem: &std::io::Error) -> Failure {
    Failure::Environment {
        problem: format!("{} cannot be read: {problem}", path.display()),
        hint: "name a file of `plimsoll estimate --ledger`, of torch.cuda.memory._dump_snapshot or of `plimsoll trace`"
            .to_owned(),
    }
}
