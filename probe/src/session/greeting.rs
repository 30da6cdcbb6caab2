//! The first exchange with a worker: it says who it is, or why it cannot.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::conversation::{GARBAGE, TICK};
use super::death::death;
use super::worker_clock::WorkerClock;
use super::{PATIENCE_LOADING, Request, Update, Watcher};
use crate::exit::Failure;
use crate::interrupt;
use crate::worker::{ErrorKind, Event, Hello, Line, Next, PROTOCOL, Parsed, Worker};

/// Why there is no record.
pub enum Early {
    /// PyTorch does not see the device.
    NoDevice(Failure),
    /// Anything else.
    Other(Failure),
}

impl Early {
    pub fn into_failure(self) -> Failure {
        match self {
            Self::NoDevice(failure) | Self::Other(failure) => failure,
        }
    }
}

impl From<Failure> for Early {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

/// The first exchange, before there is a record.
pub struct Greeting<'a> {
    pub request: &'a Request<'a>,
    pub worker: Worker,
    pub clock: WorkerClock,
    pub garbage: u32,
}

impl Greeting<'_> {
    /// Waits until the worker has said who it is, and of several cards every rank: in their order.
    pub fn hello(&mut self, watcher: &mut dyn Watcher) -> Result<Vec<Hello>, Early> {
        let count = usize::try_from(self.request.scenario.parallel.gpus).unwrap_or(1).max(1);
        let mut hellos: BTreeMap<u32, Hello> = BTreeMap::new();
        let patience = self.request.timeout.unwrap_or(PATIENCE_LOADING);
        let start = Instant::now();
        let mut heard = start;
        let mut lines = 0;
        loop {
            if interrupt::asked() {
                return Err(Early::Other(Failure::Interrupted));
            }
            let line = match self.worker.next(TICK) {
                Next::Line(line) => line,
                Next::Silence if heard.elapsed() >= patience => {
                    let end = self.worker.kill();
                    return Err(environment(silence(patience), with_tail(SLOW_HINT, &end.stderr)));
                }
                Next::Silence => continue,
                Next::Gone => {
                    let end = self.worker.finish();
                    if interrupt::asked() {
                        return Err(Early::Other(Failure::Interrupted));
                    }
                    let (problem, hint) = death(&end);
                    let problem = format!("{problem} before it said who it is");
                    return Err(environment(problem, with_tail(&hint, &end.stderr)));
                }
            };
            heard = Instant::now();
            lines += 1;
            if lines > PRELUDE * u32::try_from(count).unwrap_or(1) || start.elapsed() > patience * PATIENCES {
                let end = self.worker.kill();
                let problem = format!("the worker sent {lines} lines without saying who it is");
                return Err(environment(problem, with_tail(NOT_PYTHON_HINT, &end.stderr)));
            }
            let is_endless = matches!(line, Line::Endless(_));
            match line {
                Line::Garbage(what) | Line::Endless(what) => {
                    self.garbage = if is_endless { GARBAGE + 1 } else { self.garbage + 1 };
                    if self.garbage > GARBAGE {
                        let end = self.worker.kill();
                        let problem = format!("the worker does not speak the protocol: {what}");
                        return Err(environment(problem, with_tail(NOT_PYTHON_HINT, &end.stderr)));
                    }
                }
                Line::Event(Parsed { at, rank, event }) => {
                    self.clock.heard(at);
                    match event {
                        Event::Hello(hello) if hello.protocol == PROTOCOL => {
                            hellos.insert(rank, *hello);
                            if hellos.len() == count {
                                return Ok(hellos.into_values().collect());
                            }
                        }
                        Event::Hello(hello) => {
                            let problem = format!("the worker speaks protocol {}, not {PROTOCOL}", hello.protocol);
                            let hint = "use the worker of this Plimsoll: plimsoll probe --print-worker";
                            return Err(environment(problem, hint.to_owned()));
                        }
                        Event::Error { kind, message, hint, traceback } => {
                            let detail = traceback.unwrap_or_default();
                            let failure = Failure::Environment {
                                problem: of_rank(count > 1, rank, kind, message),
                                hint: with_tail(&hint.unwrap_or_default(), &detail),
                            };
                            return Err(match kind {
                                ErrorKind::NoDevice => Early::NoDevice(failure),
                                _ => Early::Other(failure),
                            });
                        }
                        Event::Progress { message } if rank == 0 => watcher.see(&Update::Progress(&message)),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// A worker's words, with the rank they come from where that says more than the words do.
pub fn of_rank(several: bool, rank: u32, kind: ErrorKind, message: String) -> String {
    let its_own = matches!(
        kind,
        ErrorKind::Lost | ErrorKind::NoDevice | ErrorKind::OutOfMemory | ErrorKind::Internal | ErrorKind::NotFinite
    );
    if several && its_own { format!("rank {rank}: {message}") } else { message }
}

/// Most lines before the greeting; a real worker tells in ten what it imports.
const PRELUDE: u32 = 1000;
/// Within how many times the patience for one line the greeting must have come.
const PATIENCES: u32 = 4;

const SLOW_HINT: &str = "a slow disk may need longer to import PyTorch: give --timeout SECONDS";
const NOT_PYTHON_HINT: &str = "check that --python names a Python interpreter";

fn environment(problem: String, hint: String) -> Early {
    Early::Other(Failure::Environment { problem, hint })
}

/// The hint, and below it the last lines of what is known besides.
fn with_tail(hint: &str, detail: &str) -> String {
    const LINES: usize = 15;
    let lines: Vec<&str> = detail.trim().lines().collect();
    let Some(last) = lines.get(lines.len().saturating_sub(LINES)..).filter(|last| !last.is_empty()) else {
        return hint.to_owned();
    };
    format!("{hint}\n{}", last.iter().map(|line| format!("  | {line}\n")).collect::<String>().trim_end())
}

/// The worker said nothing for too long.
pub fn silence(patience: Duration) -> String {
    format!("the worker said nothing for {} s", patience.as_secs())
}
