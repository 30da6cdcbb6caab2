//! Measuring one scenario: a fresh worker is started, listened to, guarded and ended; what it said becomes the record.

mod conversation;
mod death;
mod fleet;
mod greeting;
mod others;
mod predict;
mod record;
mod sensors;
mod telling;
mod work;
mod worker_clock;

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_core::estimate::PhaseName;
use plimsoll_core::measurement::{Attempt, DeviceKind, Event, MeasuredDevice, MeasuredSoftware, MeasuredStep, Sample};
use plimsoll_core::{Bytes, Measurement, Scenario};

use crate::exit::Failure;
use crate::policy::Shape;
use crate::{interrupt, worker};

pub use predict::{as_measured, on_card, with_shape};
pub use work::Work;

/// Steps of an attempt unless somebody asks otherwise: the first one makes lazy state, two more are the steady state. In
/// inference as many generations or forwards.
pub const STEPS: u64 = 3;
/// How long the worker may say nothing while it imports and builds.
pub const PATIENCE_LOADING: Duration = Duration::from_secs(300);
/// How long it may say nothing once the loop runs: the longest phase must be shorter.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What.
    pub scenario: &'a Scenario,
    /// Where; `None` takes the best there is.
    pub device: Option<DeviceKind>,
    /// Which card, in the order of the bus; `None` leaves it to the environment (`CUDA_VISIBLE_DEVICES`, else the first).
    pub index: Option<u32>,
    /// The Python to use; `None` looks for one.
    pub python: Option<&'a Path>,
    /// Hard cap of the process.
    pub limit: Option<Bytes>,
    /// Steps of an attempt.
    pub steps: u64,
    /// Where to write a memory snapshot.
    pub snapshot: Option<&'a Path>,
    /// Where to write a profiler trace.
    pub trace: Option<&'a Path>,
    /// Raise the micro-batch while the device is used less than this, in percent.
    pub target_utilization: Option<u8>,
    /// Halve the micro-batch when memory runs out.
    pub adapt: bool,
    /// What to do about others on the card.
    pub busy: Busy,
    /// How long the worker may say nothing; `None`: [`PATIENCE_LOADING`], then [`PATIENCE`].
    pub timeout: Option<Duration>,
    /// Whether phases are told apart. Only to measure what that costs.
    pub phases: bool,
    /// Whether memory and utilisation are sampled. Only to measure what that costs.
    pub sampling: bool,
}

impl<'a> Request<'a> {
    /// The scenario with every choice at its default.
    pub const fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            device: None,
            index: None,
            python: None,
            limit: None,
            steps: STEPS,
            snapshot: None,
            trace: None,
            target_utilization: None,
            adapt: true,
            busy: Busy::Refuse,
            timeout: None,
            phases: true,
            sampling: true,
        }
    }
}

/// What to do about others on the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Busy {
    // Plain comments: documented values would stretch `--help` to a paragraph an option.
    // Refuse when they hold over a quarter of it, warn from a twentieth.
    Refuse,
    // Warn from a twentieth.
    Warn,
    // Say nothing.
    Ignore,
}

/// What a session tells while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Update<'a> {
    /// A worker was started.
    Starting {
        /// The interpreter.
        python: &'a Path,
        /// Where it will run, unless PyTorch is left to say.
        device: Option<DeviceKind>,
        /// What it will repeat.
        work: Work,
    },
    /// The worker said who it is.
    Hello {
        /// What runs it.
        software: &'a MeasuredSoftware,
        /// Where it runs.
        device: &'a MeasuredDevice,
        /// What the process may have.
        room: Option<Bytes>,
        /// How deep it should sit.
        load_line: Option<Bytes>,
    },
    /// What the worker is about, while it imports and builds.
    Progress(&'a str),
    /// An attempt begins.
    Attempt {
        /// Micro-batch and accumulation.
        shape: Shape,
        /// How many steps.
        steps: u64,
    },
    /// A phase ended.
    Phase {
        /// Which.
        name: PhaseName,
        /// Of which step, from 1.
        step: Option<u64>,
        /// Of which micro-batch, from 1.
        micro_batch: Option<u64>,
    },
    /// A step ended.
    Step(&'a MeasuredStep),
    /// What was just sampled.
    Usage(&'a Sample),
    /// Something happened that the record keeps.
    Event(&'a Event),
    /// Why the worker could not go on. The record keeps the first sentence only.
    Trouble {
        /// What happened.
        problem: &'a str,
        /// What to do.
        hint: &'a str,
        /// A traceback, or the end of standard error.
        detail: &'a str,
    },
    /// The worker is gone.
    End,
}

/// Somebody who looks on.
pub trait Watcher {
    /// Called in order, from the session's own thread; it must not take long.
    fn see(&mut self, update: &Update<'_>);
}

/// Looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Watcher for Quiet {
    fn see(&mut self, _: &Update<'_>) {}
}

/// Runs the scenario and says what it took.
///
/// There is a record as soon as the worker said who it is, also when memory ran out, the worker died or somebody pressed
/// Ctrl-C: `attempts` say how far it came, `events` why. Callers that measure several look at [`interrupt::asked`].
///
/// # Errors
/// No Python, no PyTorch, a device that is not there or busy, a worker that ends before it said who it is.
pub fn measure(request: &Request<'_>, watcher: &mut dyn Watcher) -> Result<Measurement, Failure> {
    interrupt::install()?;
    let python = worker::find(request.python)?;
    let sensors = sensors::Sensors::open();
    // Who names a card by its number wants a card.
    let asked = request.device.or(request.index.map(|_| DeviceKind::Cuda));
    if let Some(failure) = request.index.and_then(|index| sensors.lacks(index)) {
        return Err(failure);
    }
    let device = asked.unwrap_or_else(|| best(&sensors));
    // Where nothing shows a card PyTorch may see one all the same: a container can lack the library that tells of cards.
    let best = asked.is_none() && device == DeviceKind::Cpu;
    let mut place = conversation::Place { python: &python, device, best, sensors: &sensors, fallen_back: None };
    match conversation::run(request, &place, watcher) {
        Err(greeting::Early::NoDevice(reason)) if asked.is_none() => {
            // Nobody asked for the card; that it cannot be used is said, and the measurement goes on without it.
            (place.device, place.best) = (DeviceKind::Cpu, false);
            place.fallen_back = Some(reason.problem());
            conversation::run(request, &place, watcher)
        }
        outcome => outcome,
    }
    .map_err(greeting::Early::into_failure)
}

/// The best device there is, as far as it shows without asking PyTorch.
fn best(sensors: &sensors::Sensors) -> DeviceKind {
    // A container may hide the driver's library and give the card all the same.
    let files = ["/dev/nvidiactl", "/dev/dxg", "/dev/kfd"];
    if sensors.has_card() || files.iter().any(|file| Path::new(file).exists()) {
        DeviceKind::Cuda
    } else if cfg!(all(target_os = "macos", target_arch = "aarch64")) {
        DeviceKind::Mps
    } else {
        DeviceKind::Cpu
    }
}

/// The attempt that `peak`, `speed` and the steady state are about, with its index.
pub fn subject(record: &Measurement) -> Option<(usize, &Attempt)> {
    record.subject().and_then(|index| Some((index, record.attempts.get(index)?)))
}

/// A path the worker can open whatever its current folder is.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
