//! `plimsoll probe`: the real training loop, or the real generation, on the user's own card, measured.

mod bench;
mod contact;
mod entry;
mod figures;
mod fit;
mod ladder;
mod progress;
mod report;
mod run;
mod suite;
mod survey;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use plimsoll_core::estimate::Run;
use plimsoll_core::measurement::DeviceKind;
use plimsoll_core::scenario::{Mode, ParallelStrategy, at, limits, parse_memory};
use plimsoll_core::{Bytes, Error, Scenario};

use crate::exit::{self, Failure};
use crate::scripts::WORKER;
use crate::session::{self, Busy, Request};

/// Run the real training loop or inference with your own PyTorch and measure it
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Print the Python script that runs the loop, and end
    #[arg(long, required = true)]
    print_worker: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Ladder(Box<ladder::Args>),
    Fit(Box<fit::Args>),
    Suite(Box<suite::Args>),
    Contact(Box<contact::Args>),
}

/// Where and how a worker runs: the same for every subcommand.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Measuring")]
pub struct Where {
    /// Where to run [default: the card if there is one, else the processor]
    #[arg(long, value_name = "DEVICE", value_enum)]
    device: Option<Kind>,

    /// Which card, counted in the order of the bus [default: the first one
    /// that CUDA_VISIBLE_DEVICES leaves]
    #[arg(long, value_name = "N")]
    index: Option<u32>,

    /// The Python to use [default: that of VIRTUAL_ENV or CONDA_PREFIX, else
    /// python3 or python; the first that has PyTorch]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,

    /// Hard cap of the process: 11GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    limit: Option<Bytes>,

    /// Optimizer steps of an attempt, in inference generations or forward
    /// passes. The first also makes the optimizer's state and what libraries
    /// keep; the others are the steady state [default: 3, or as many more as
    /// the scenario says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    steps: Option<u64>,

    /// How long the worker may say nothing [default: 300 while it imports and
    /// builds, then 120]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,

    /// When others are on the card: refuse (from a quarter of its memory; warn
    /// from a twentieth), warn, or ignore
    #[arg(long, value_enum, default_value_t = Busy::Refuse, value_name = "WHAT")]
    busy: Busy,
}

impl Where {
    /// Puts what was said into a request.
    pub fn apply<'a>(&'a self, request: &mut Request<'a>) {
        request.device = self.device.map(Kind::kind);
        request.index = self.index;
        request.python = self.python.as_deref();
        request.limit = self.limit;
        request.steps = self.steps(request.scenario);
        request.timeout = self.timeout.map(Duration::from_secs);
        request.busy = self.busy;
    }

    /// How many steps an attempt makes.
    fn steps(&self, scenario: &Scenario) -> u64 {
        let said = match scenario.training.mode {
            Mode::Train => scenario.training.optimizer_steps,
            Mode::Inference => 0,
        };
        self.steps.unwrap_or_else(|| said.max(session::STEPS))
    }

    /// The scenario with the steps that are run, as far as the estimate goes along: what the allocator reserves may still grow
    /// after the second, and near the end of a card it matters how many of them cut what is free into pieces.
    pub fn with_steps(&self, mut scenario: Scenario) -> Scenario {
        if scenario.training.mode == Mode::Train {
            scenario.training.optimizer_steps = self.steps(&scenario).clamp(limits::STEPS_LEAST, limits::STEPS);
        }
        scenario
    }
}

/// What `--device` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    // Plain comments: documented values would stretch `--help` to a paragraph an option.
    // NVIDIA, and AMD with PyTorch's ROCm build.
    Cuda,
    // Apple.
    Mps,
    // None of them.
    Cpu,
}

impl Kind {
    const fn kind(self) -> DeviceKind {
        match self {
            Self::Cuda => DeviceKind::Cuda,
            Self::Mps => DeviceKind::Mps,
            Self::Cpu => DeviceKind::Cpu,
        }
    }
}

/// Refuses several cards, where one is measured after the other.
///
/// # Errors
/// The key that asks for them.
pub fn check_one_card(scenario: &Scenario, what: &str) -> Result<(), Error> {
    if scenario.parallel.gpus > 1 {
        return Err(Error::new(
            at::parallel::gpus,
            format!("{what} is for one card; several are measured by plimsoll probe run"),
            "leave parallel out, or use probe run",
        ));
    }
    Ok(())
}

/// Refuses what of several cards no worker runs.
fn check_several(scenario: &Scenario) -> Result<(), Error> {
    let parallel = &scenario.parallel;
    if parallel.nodes() > 1 {
        return Err(Error::new(
            at::parallel::gpus,
            format!("the probe starts the processes of one machine, and these cards stand in {}", parallel.nodes()),
            "use no more than parallel.per_node, or estimate it",
        ));
    }
    if !MEASURED.contains(&parallel.strategy) {
        return Err(Error::new(
            at::parallel::strategy,
            format!("{} is not measured yet", parallel.strategy),
            "use ddp, fsdp2, fsdp1 or DeepSpeed's zero-0 to zero-3",
        ));
    }
    let degrees = [
        (at::parallel::tensor, parallel.tensor),
        (at::parallel::context, parallel.context),
        (at::parallel::expert, parallel.expert),
        (at::parallel::pipeline, parallel.pipeline),
    ];
    match degrees.into_iter().find(|(_, degree)| *degree > 1) {
        Some((key, _)) => Err(Error::new(key, "it is not measured yet", "leave it out")),
        None => Ok(()),
    }
}

/// The strategies a worker runs.
const MEASURED: [ParallelStrategy; 7] = [
    ParallelStrategy::Ddp,
    ParallelStrategy::Fsdp2,
    ParallelStrategy::Fsdp1,
    ParallelStrategy::Zero0,
    ParallelStrategy::Zero1,
    ParallelStrategy::Zero2,
    ParallelStrategy::Zero3,
];

/// Refuses torch.compile where no worker runs it, what of several cards none runs, and inference that the engine refuses, before
/// anything is started: of a generation that is not estimated nothing could be compared. A model that the engine does not know at
/// all may be measured all the same.
///
/// # Errors
/// The engine's own.
pub fn check_mode(scenario: &Scenario) -> Result<(), Error> {
    if scenario.parallel.gpus > 1 {
        check_several(scenario)?;
    }
    if scenario.training.compile && (scenario.parallel.gpus > 1 || scenario.training.mode != Mode::Train) {
        let problem = "torch.compile is measured in training, and on one card";
        return Err(Error::new(at::training::compile, problem, "leave compile out"));
    }
    if scenario.training.mode == Mode::Train || scenario.estimated().is_err() {
        return Ok(());
    }
    match Run::new(scenario) {
        Err(error) if error.key == at::training::mode => Err(error),
        _ => Ok(()),
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    match &args.command {
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Ladder(args)) => ladder::run(args),
        Some(Command::Fit(args)) => fit::run(args),
        Some(Command::Suite(args)) => suite::run(args),
        Some(Command::Contact(args)) => contact::run(args),
        None => {
            anstream::stdout().lock().write_all(WORKER.as_bytes())?;
            Ok(exit::OK)
        }
    }
}
