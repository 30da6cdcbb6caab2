//! Where trials run: each in a fresh process, with the user's own PyTorch.

use std::io::IsTerminal as _;
use std::path::Path;

use plimsoll_core::{Bytes, Measurement, Scenario};

use super::Where;
use super::progress::Progress;
use crate::exit::Failure;
use crate::interrupt;
use crate::session::{self, Quiet, Request};

/// One trial.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// What is trained.
    pub scenario: &'a Scenario,
    /// Hard cap of the process.
    pub limit: Option<Bytes>,
    /// Whether to halve the micro-batch when memory runs out, rather than take that for the answer.
    pub adapt: bool,
    /// Where the allocator's history goes, if anywhere.
    pub snapshot: Option<&'a Path>,
}

/// Somewhere to run trials.
pub trait Bench {
    /// Runs one in a fresh process.
    ///
    /// # Errors
    /// As [`session::measure`].
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Measurement, Failure>;

    /// Whether the user wants no more of them.
    fn stopped(&self) -> bool;

    /// Tells the user how it goes, while it goes.
    fn say(&mut self, line: &str);
}

/// The user's own machine.
#[derive(Debug)]
pub struct Machine<'a> {
    place: &'a Where,
}

impl<'a> Machine<'a> {
    /// Runs where the flags say.
    pub const fn new(place: &'a Where) -> Self {
        Self { place }
    }
}

impl Bench for Machine<'_> {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Measurement, Failure> {
        let mut request = Request::new(trial.scenario);
        self.place.apply(&mut request);
        request.limit = trial.limit;
        request.adapt = trial.adapt;
        request.snapshot = trial.snapshot;
        if std::io::stderr().is_terminal() {
            session::measure(&request, &mut Progress::new())
        } else {
            session::measure(&request, &mut Quiet)
        }
    }

    fn stopped(&self) -> bool {
        interrupt::asked()
    }

    fn say(&mut self, line: &str) {
        eprintln!("{line}");
    }
}

/// A bench without a machine, for tests: memory by a formula, and no time passes.
#[cfg(test)]
pub mod paper {
    use plimsoll_core::measurement::{Attempt, DeviceKind, MeasuredPeak, Outcome, Speed};

    use super::*;
    use crate::records::sample;

    /// What a scenario takes, in bytes; `None` where the worker fails.
    pub type Formula = fn(&Scenario) -> Option<u64>;

    /// The bench.
    pub struct Paper {
        /// What it takes.
        pub formula: Formula,
        /// What there is.
        pub room: Bytes,
        /// What kind of device it plays.
        pub kind: DeviceKind,
        /// Its compute capability.
        pub capability: Option<String>,
        /// The scenarios that were tried.
        pub tried: Vec<Scenario>,
        /// The user presses Ctrl-C during this trial, counted from 1.
        pub stop_in: Option<usize>,
    }

    impl Paper {
        /// A card of 12 GiB.
        pub fn card(formula: Formula) -> Self {
            let room = Bytes::from_gib(12);
            let capability = Some("12.0".to_owned());
            Self { formula, room, kind: DeviceKind::Cuda, capability, tried: Vec::new(), stop_in: None }
        }
    }

    impl Bench for Paper {
        fn measure(&mut self, trial: &Trial<'_>) -> Result<Measurement, Failure> {
            self.tried.push(trial.scenario.clone());
            let room = trial.limit.map_or(self.room, |limit| limit.min(self.room));
            let mut record = sample::record();
            record.device.kind = self.kind;
            record.device.capability.clone_from(&self.capability);
            record.device.reserved = None;
            record.device.used_before = None;
            record.device.total = self.room;
            record.allocator.limit = trial.limit;
            record.scenario = trial.scenario.to_value();
            let takes = (self.formula)(trial.scenario);
            let stopped = self.stop_in == Some(self.tried.len());
            let outcome = match takes {
                _ if stopped => Outcome::Interrupted,
                None => Outcome::Failed,
                Some(takes) if Bytes::new(takes) <= room => Outcome::Finished,
                Some(_) if trial.limit.is_some() => Outcome::Limit,
                Some(_) => Outcome::OutOfMemory,
            };
            let finished = outcome == Outcome::Finished;
            let peak = Some(Bytes::new(takes.unwrap_or_default()).min(room));
            let batch = trial.scenario.input.batch;
            let accumulation = trial.scenario.training.accumulation;
            record.attempts = vec![Attempt { batch, accumulation, outcome, steps: if finished { 3 } else { 0 } }];
            record.peak = MeasuredPeak { allocated: peak, reserved: peak, process: peak, process_source: None };
            record.speed = finished.then_some(Speed {
                step_micros: 1000 * batch * accumulation,
                samples_per_second: 1000.0,
                tokens_per_second: None,
            });
            Ok(record)
        }

        fn stopped(&self) -> bool {
            self.stop_in.is_some_and(|at| self.tried.len() >= at)
        }

        fn say(&mut self, _: &str) {}
    }
}
