//! `plimsoll rehearse`: a command that trains with PyTorch, run unchanged on cards that are not there.

mod card;
mod history;
mod live;
mod outer;
mod peaks;
mod place;
mod planner;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;

use plimsoll_core::{Bytes, Error, scenario::parse_memory};
use plimsoll_hollow::{Dock, Rules};
use serde_json::json;

use crate::exit::{self, Failure};
use crate::signals;
use crate::worker::{Quarters, find};

use live::Live;
use peaks::Peaks;
use planner::Planner;

/// Runs in the command's Python before its own code.
const PRELUDE: &str = include_str!("prelude.py");

const EXAMPLES: &str = "\
Examples:
  plimsoll rehearse --gpu rtx-4090 -- python train.py --batch-size 8
  plimsoll rehearse --gpu rtx-5090 --steps 3 -- python train.py
  plimsoll rehearse --gpu rtx-5070-ti --ask-cudnn -- python train.py --arch resnet50
  plimsoll rehearse --gpu h100-sxm --cards 2 -- torchrun --nproc-per-node 2 train.py
  plimsoll rehearse --compute-capability 8.9 --sms 24 --memory \"8 GiB\" -- python train.py

PyTorch is the real one and is not changed: what it allocates, and when it runs out
of memory, is what it would do on the card. Kernels do nothing, so losses are zero
and times mean nothing. What a convolution takes in cuDNN is nothing, unless
--ask-cudnn has the library plan it.
Needs Linux on x86-64 and PyTorch's CUDA build; no driver and no card.";

/// Run a command that trains with PyTorch on a card that is not there
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The card (see `plimsoll gpus`)
    #[arg(long, value_name = "GPU", default_value = "rtx-5070-ti-laptop")]
    gpu: String,

    /// Its memory as PyTorch sees it: "12 GiB" [default: the card's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<Bytes>,

    /// Its compute capability: 8.9 [default: the card's]
    #[arg(long, value_name = "X.Y", value_parser = card::parse_capability)]
    compute_capability: Option<(u32, u32)>,

    /// Its streaming multiprocessors [default: the card's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    sms: Option<u32>,

    /// What its context and libraries take of a process [default: as fitted to
    /// published readings]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    context: Option<Bytes>,

    /// What it is called [default: the card's name]
    #[arg(long, value_name = "NAME", value_parser = card::parse_name)]
    name: Option<String>,

    /// Where the driver puts what it is asked for, above or below what it
    /// placed before; PyTorch prefers the lowest of free blocks of one size
    #[arg(long, value_enum, default_value_t = Addresses::Rising, value_name = "ORDER")]
    addresses: Addresses,

    /// How many such cards [default: 1, or as --gpu says: "2x4090"]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(card::MOST_CARDS)))]
    cards: Option<u8>,

    /// The Python whose PyTorch the command uses [default: the command's own, else as `plimsoll probe run` finds it]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,

    /// Ask the cuDNN of this Python what it takes for each convolution on such a
    /// card (9.8 or later, PyTorch 2.8; it is asked in a process of its own)
    #[arg(long)]
    ask_cudnn: bool,

    /// What a truth value read from the card is [default: all() true, any() false]
    #[arg(long, value_name = "BOOL")]
    truth: Option<bool>,

    /// Generation ends after this many tokens [default: at once]
    #[arg(long, value_name = "N", default_value_t = 0)]
    stop_after: u32,

    /// A boolean mask selects no element [default: all of them]
    #[arg(long)]
    selects_nothing: bool,

    /// End the command after this many optimizer steps; where several
    /// optimizers step in turn, of each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,

    /// Write the allocator's history: for `plimsoll inspect`, or
    /// pytorch.org/memory_viz
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,

    /// Write the allocator's history as a ledger, for `plimsoll inspect`;
    /// compressed where the name ends in .gz
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,

    /// Tell while it runs how deep it sits [default: on a terminal]
    #[arg(long)]
    live: bool,

    /// Write the peaks to this file, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Where a driver puts the next allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Addresses {
    /// At the lowest address that is free, as the estimate has it.
    Rising,
    /// At the highest, as an H100's and an H200's did mostly.
    Falling,
}

fn parse_size(text: &str) -> Result<Bytes, String> {
    parse_memory(text).map_err(|error| error.to_string())
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(Failure::Environment {
            problem: "hollow cards exist on Linux on x86-64 only".to_owned(),
            hint: "use such a machine, a virtual one or WSL; or `plimsoll estimate`, which runs everywhere".to_owned(),
        });
    }
    let (card, count, load_line) = card::card(args)?;
    let Some((program, rest)) = args.command.split_first() else {
        return Err(
            Error::new("command", "nothing to run", "name it after --: plimsoll rehearse -- python train.py").into()
        );
    };
    let python = python_of(args.python.as_deref(), program, rest)?;
    // What the command loads lies here, so nobody else may write to it; after a SIGKILL the next start takes it away.
    let quarters = Quarters::new()?;
    let torch = place::torch(&quarters, &python)?;
    let stand_in = place::stand_in()?;
    let dock = Dock::build(quarters.path(), &torch, &stand_in)
        .map_err(|Error { problem, hint, .. }| Failure::Environment { problem, hint })?;
    let rules = Rules { truth: args.truth, stop_after: args.stop_after, selects_nothing: args.selects_nothing };
    let planner = args.ask_cudnn.then(|| Planner::start(&python, &card, quarters.path())).transpose()?;
    let socket = planner.as_ref().map(|planner| planner.socket.clone());
    let variables = dock.environment(vec![card.clone(); usize::from(count)], rules, socket)?;

    let left = prelude(quarters.path(), args).map_err(|error| unwritable(&error))?;
    let outer = outer::folder();
    let mut command = Command::new(program);
    command.args(rest);
    for (name, value) in variables {
        match name {
            "LD_PRELOAD" | "LD_LIBRARY_PATH" => command.env(name, outer::before(&value, name, outer.as_deref())),
            _ => command.env(name, value),
        };
    }
    command.env("PYTHONPATH", outer::before(&left.to_string_lossy(), "PYTHONPATH", outer.as_deref()));
    eprintln!("Rehearsing on a hollow {} (PyTorch {}); kernels do nothing", card.name, dock.torch());

    let mut child = command.spawn().map_err(|error| Failure::Environment {
        problem: format!("cannot run {}: {error}", program.display()),
        hint: "check the command after --".to_owned(),
    })?;
    let pid = child.id();
    let watched = args.is_watched().then(|| Live::start(left.clone(), Bytes::new(card.context), load_line));
    // What is asked of this process is the command's to do; what it leaves is still told, and the folder goes.
    signals::listen(move || ask_to_end(pid)).map_err(|error| Failure::Environment {
        problem: format!("cannot listen for Ctrl-C: {error}"),
        hint: "end some other processes".to_owned(),
    })?;
    let status = child.wait().map_err(|error| Failure::Environment {
        problem: format!("cannot wait for {}: {error}", program.display()),
        hint: "run it again".to_owned(),
    })?;
    drop(watched);
    let peaks = Peaks::read(&left);
    let plans = planner.as_ref().map(Planner::plans);
    eprint!("{}", peaks.text(Bytes::new(card.context), load_line, args.steps, plans.as_ref()));
    if let Some(file) = &args.out {
        fs::write(file, peaks.json(&card, dock.torch(), plans.as_ref())).map_err(|error| Failure::Environment {
            problem: format!("cannot write {}: {error}", file.display()),
            hint: "name a file in a folder that can be written to".to_owned(),
        })?;
    }
    if let Some(file) = &args.ledger {
        for problem in history::write(file, &left, &peaks)? {
            eprintln!("{problem}");
        }
    }
    ending(status, &peaks)
}

impl Args {
    /// Whether somebody looks on.
    fn is_watched(&self) -> bool {
        self.live || std::io::stderr().is_terminal()
    }
}

/// Hands on a wish to end. Ctrl-C reached the command as well, so it gets a moment of its own first.
fn ask_to_end(pid: u32) {
    thread::sleep(Duration::from_secs(2));
    #[cfg(unix)]
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        // It may be gone by now, which is as good.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    #[cfg(not(unix))]
    let _ = pid;
}

/// Fits, does not fit, or failed for another reason.
fn ending(status: ExitStatus, peaks: &Peaks) -> Result<u8, Failure> {
    if status.success() {
        return Ok(exit::OK);
    }
    if peaks.out_of_memory() {
        return Ok(exit::DOES_NOT_FIT);
    }
    Err(Failure::Environment {
        problem: format!("the command failed ({status})"),
        hint: "what it printed says why; without `plimsoll rehearse` it may do so as well".to_owned(),
    })
}

/// The Python that is named, the command's own if it is one or names one to another `plimsoll`, else the environment's.
fn python_of(named: Option<&Path>, program: &OsStr, rest: &[OsString]) -> Result<PathBuf, Failure> {
    let own = Path::new(program);
    let is = |what: &str| own.file_name().is_some_and(|name| name.to_string_lossy().starts_with(what));
    if named.is_none() && is("python") {
        return Ok(own.to_owned());
    }
    let asked = is("plimsoll").then(|| rest.iter().skip_while(|word| *word != "--python").nth(1)).flatten();
    Ok(find(named.or(asked.map(Path::new)))?.program)
}

/// Writes what runs before the command's code; answers the folder in which it leaves the peaks.
fn prelude(folder: &Path, args: &Args) -> std::io::Result<PathBuf> {
    let place = folder.join("rehearsal");
    fs::create_dir(&place)?;
    fs::write(place.join("sitecustomize.py"), PRELUDE)?;
    let snapshot = args.snapshot.as_deref().map(std::path::absolute).transpose()?;
    let asked = json!({
        "steps": args.steps, "snapshot": snapshot, "ledger": args.ledger.is_some(), "live": args.is_watched(),
    });
    fs::write(place.join("asked.json"), asked.to_string())?;
    Ok(place)
}

fn unwritable(error: &std::io::Error) -> Failure {
    Failure::Environment {
        problem: format!("cannot write to {}: {error}", env::temp_dir().display()),
        hint: "point TMPDIR to a folder that can be written to".to_owned(),
    }
}
