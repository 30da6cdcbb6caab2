//! One worker from start to end.

use std::time::{Duration, Instant};

use plimsoll_core::measurement::{DeviceKind, Event as Kept, EventKind, Outcome, Sample};
use plimsoll_core::{Bytes, Measurement};

use super::death::death;
use super::fleet::{Fleet, Other};
use super::greeting::{Early, Greeting, of_rank, silence};
use super::others::{Others, others};
use super::predict::{self, Predictor};
use super::record::Builder;
use super::sensors::{Sampling, Sensors, Taken};
use super::telling::{self, told};
use super::worker_clock::WorkerClock;
use super::{Busy, PATIENCE, PATIENCE_LOADING, Request, Update, Watcher, Work};
use crate::exit::Failure;
use crate::interrupt;
use crate::policy::{self, Attempted, Policy, Shape, Why};
use crate::scripts::WORKER;
use crate::worker::{
    AttemptOutcome, Command, ErrorKind, Event, GuardKind, Hello, Job, Launch, Line, Next, Parsed, Phase, Python, Worker,
};

/// How often the samples are looked at and Ctrl-C is answered.
pub const TICK: Duration = Duration::from_millis(50);
/// Lines on the protocol's descriptor that are none of it, before the worker is given up.
pub const GARBAGE: u32 = 5;

/// Notes of a worker that are kept; a real one has a handful.
const NOTES: u32 = 500;

/// Where a session runs.
#[derive(Clone)]
pub struct Place<'a> {
    pub python: &'a Python,
    pub device: DeviceKind,
    /// Whether PyTorch may know of something better.
    pub best: bool,
    pub sensors: &'a Sensors,
    /// Why it runs on the processor although there is a card.
    pub fallen_back: Option<String>,
}

/// Runs one worker.
pub fn run(request: &Request<'_>, place: &Place<'_>, watcher: &mut dyn Watcher) -> Result<Measurement, Early> {
    let clock = WorkerClock::new();
    let launch = Launch { python: place.python, script: WORKER, device: place.device, card: request.index };
    let mut worker = Worker::start(&launch)?;
    let work = Work::of(request.scenario);
    watcher.see(&Update::Starting {
        python: &place.python.program,
        device: (!place.best).then_some(place.device),
        work,
    });
    let text = |path: &std::path::Path| super::absolute(path).to_string_lossy().into_owned();
    worker.send(&Job {
        steps: request.steps,
        limit: request.limit,
        snapshot: request.snapshot.map(text),
        trace: request.trace.map(text),
        phases: request.phases,
        best: place.best,
        ..Job::new(request.scenario, place.device)
    });
    let mut greeting = Greeting { request, worker, clock, garbage: 0 };
    let mut hellos = greeting.hello(watcher)?.into_iter();
    let Greeting { worker, clock, garbage, .. } = greeting;
    let Some(hello) = hellos.next() else { return Err(Early::Other(Failure::Interrupted)) };
    let card_of = |hello: &Hello| match hello.device.kind {
        DeviceKind::Cuda => place.sensors.card(hello, request.index),
        DeviceKind::Mps | DeviceKind::Cpu => None,
    };
    let card = card_of(&hello);
    let mates: Vec<(Hello, Option<Taken>)> =
        hellos.map(|hello| (card_of(&hello), hello)).map(|(c, h)| (h, c)).collect();
    let mut all = std::iter::once(&card).chain(mates.iter().map(|(_, card)| card)).flatten();
    let busy = all.find_map(|card| others(card, request.busy));
    if let (Some(Others { refuse: true, message }), Busy::Refuse) = (&busy, request.busy) {
        return Err(Early::Other(Failure::Environment {
            problem: message.clone(),
            hint: "end them, or measure all the same with --busy warn".to_owned(),
        }));
    }
    // Memory of the machine says nothing about that of a card.
    let sample = |hello: &Hello, card: Option<&Taken>, pid: u32| {
        let can_sample = card.is_some() || hello.device.kind == DeviceKind::Cpu;
        (request.sampling && can_sample).then(|| Sampling::start(card, pid, clock.spawned()))
    };
    // Of several cards the process that was started is none of the ranks.
    let pid = hello.pid.filter(|_| !mates.is_empty()).unwrap_or_else(|| worker.pid());
    let sampling = sample(&hello, card.as_ref(), pid);
    let mate = |(hello, card): &(Hello, Option<Taken>)| Other {
        record: Builder::new(request.scenario, hello, card.as_ref(), request.limit),
        sampling: hello.pid.and_then(|pid| sample(hello, card.as_ref(), pid)),
    };
    let fleet = Fleet::new(mates.iter().map(mate).collect());
    let unread = (hello.device.kind == DeviceKind::Cuda && card.is_none()).then(|| place.sensors.note());
    let record = Builder::new(request.scenario, &hello, card.as_ref(), request.limit);
    let device = &record.record().device;
    let room = predict::room(device, request.limit);
    let predictor = Predictor::new(request.scenario, record.record());
    let mut session = Session {
        request,
        watcher,
        worker,
        clock,
        sampling,
        room,
        predictor,
        record,
        fleet,
        work,
        shape: Shape::new(request.scenario.input.batch, request.scenario.training.accumulation),
        attempts: Vec::new(),
        stage: Stage::Loading,
        warned: false,
        garbage,
        notes: 0,
        used: Used::default(),
        outcome: None,
    };
    session
        .say(EventKind::Note, place.fallen_back.iter().map(|why| format!("measured on the processor: {}", told(why))));
    session.say(EventKind::Note, unread);
    session.say(EventKind::Warning, busy.into_iter().map(|others| others.message));
    Ok(session.run())
}

/// Where the conversation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Model and optimizer are being made.
    Loading,
    /// An attempt runs.
    Running,
    /// The worker was told to finish.
    Finishing,
}

/// How much the device was used since the first step of the attempt ended.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    steady: bool,
    sum: u64,
    count: u64,
    /// The highest memory of the process within the attempt.
    process: Option<Bytes>,
}

struct Session<'a> {
    request: &'a Request<'a>,
    watcher: &'a mut dyn Watcher,
    worker: Worker,
    clock: WorkerClock,
    sampling: Option<Sampling>,
    room: Bytes,
    predictor: Predictor,
    record: Builder,
    fleet: Fleet,
    work: Work,
    shape: Shape,
    attempts: Vec<Attempted>,
    stage: Stage,
    /// Whether this attempt has passed the mark.
    warned: bool,
    garbage: u32,
    notes: u32,
    used: Used,
    /// How it ended, when it did not end well.
    outcome: Option<Outcome>,
}

/// Whether the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    On,
    Over,
}

impl Session<'_> {
    fn run(mut self) -> Measurement {
        let device = self.record.record().device.clone();
        let software = self.record.record().software.clone();
        let room = (device.kind == DeviceKind::Cuda || self.request.limit.is_some()).then_some(self.room);
        let load_line = self.predictor.load_line().or(room.map(policy::share));
        self.watcher.see(&Update::Hello { software: &software, device: &device, room, load_line });
        self.converse();
        self.end()
    }

    fn converse(&mut self) {
        let mut heard = Instant::now();
        let mut ticked = Instant::now();
        loop {
            let next = self.worker.next(TICK);
            if interrupt::asked() {
                self.interrupted();
                return;
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.tick();
            }
            let flow = match next {
                Next::Line(line) => {
                    heard = Instant::now();
                    match line {
                        Line::Event(parsed) => self.hear(parsed),
                        Line::Garbage(what) => self.garbage(&what),
                        Line::Endless(what) => self.too_much(&what),
                    }
                }
                Next::Silence => self.wait(heard.elapsed()),
                Next::Gone => self.gone(),
            };
            if flow == Flow::Over {
                return;
            }
        }
    }

    /// Keeps events and shows them.
    fn say(&mut self, kind: EventKind, messages: impl IntoIterator<Item = String>) {
        for message in messages {
            let at = self.clock.now();
            let event = self.record.event(at, kind, &message);
            self.show(&event);
        }
    }

    fn show(&mut self, event: &Kept) {
        self.watcher.see(&Update::Event(event));
    }

    fn tick(&mut self) {
        let Some(latest) = self.sampling.as_ref().map(Sampling::latest) else { return };
        if self.stage == Stage::Running {
            self.used.process = self.used.process.max(latest.process);
            if let (true, Some(percent)) = (self.used.steady, latest.utilization) {
                self.used.sum += u64::from(percent);
                self.used.count += 1;
            }
            self.warn(latest.process);
        }
        let sample = Sample { process: latest.process.or_else(|| self.record.worker_process()), ..latest };
        self.watcher.see(&Update::Usage(&sample));
    }

    /// Once an attempt, when 90 % of what the process may have are taken.
    fn warn(&mut self, process: Option<Bytes>) {
        let bounded = self.request.limit.is_some() || self.record.record().device.kind != DeviceKind::Cpu;
        let Some(process) = process.filter(|p| bounded && !self.warned && *p > policy::share(self.room)) else {
            return;
        };
        self.warned = true;
        let of = if self.request.limit.is_some() { "the limit" } else { "what the card has" };
        let message = format!("{process} are in use, over {} % of {of}, {}", policy::WARN_PERCENT, self.room);
        self.say(EventKind::Warning, [message]);
    }

    fn wait(&mut self, silent: Duration) -> Flow {
        if let Some(outcome) = self.fleet.stuck() {
            let at = self.clock.now();
            return self.broken_off(at, outcome);
        }
        let default = if self.stage == Stage::Loading { PATIENCE_LOADING } else { PATIENCE };
        let patience = self.request.timeout.unwrap_or(default);
        if silent < patience {
            return Flow::On;
        }
        let end = self.worker.kill();
        let hint = "if a single phase takes longer than that, give --timeout SECONDS";
        self.failed(&silence(patience), hint, &end.stderr)
    }

    fn garbage(&mut self, what: &str) -> Flow {
        self.garbage += 1;
        if self.garbage == 1 {
            self.say(EventKind::Note, [format!("something wrote to the worker's own channel: {}", told(what))]);
        }
        if self.garbage <= GARBAGE {
            return Flow::On;
        }
        self.too_much(what)
    }

    fn too_much(&mut self, what: &str) -> Flow {
        let end = self.worker.kill();
        let problem =
            |what: &str| format!("something writes to the worker's own channel, {} lines by now: {what}", self.garbage);
        let (kept, problem) = (problem(&told(what)), problem(what));
        self.failed_as(kept, &problem, "look for code that writes to descriptors by number", &end.stderr)
    }

    fn gone(&mut self) -> Flow {
        let end = self.worker.finish();
        if interrupt::asked() {
            self.interrupted();
            return Flow::Over;
        }
        let (problem, hint) = death(&end);
        self.failed(&problem, &hint, &end.stderr)
    }

    fn failed(&mut self, problem: &str, hint: &str, detail: &str) -> Flow {
        self.failed_as(problem.to_owned(), problem, hint, detail)
    }

    /// The record keeps other words than the terminal shows.
    fn failed_as(&mut self, kept: String, problem: &str, hint: &str, detail: &str) -> Flow {
        if self.stage == Stage::Finishing {
            // Nothing is lost by it.
            self.say(EventKind::Note, [format!("after everything was measured: {kept}")]);
            return Flow::Over;
        }
        self.outcome = Some(Outcome::Failed);
        self.say(EventKind::Failed, [kept]);
        self.watcher.see(&Update::Trouble { problem, hint, detail });
        Flow::Over
    }

    fn interrupted(&mut self) {
        self.outcome = Some(Outcome::Interrupted);
        self.worker.kill();
        self.say(EventKind::Interrupted, ["stopped by the user".to_owned()]);
    }

    fn hear(&mut self, Parsed { at, rank, event }: Parsed) -> Flow {
        self.clock.heard(at);
        match event {
            // What the others say of themselves while they build is what the first one says.
            Event::Progress { .. } | Event::Note { .. } if rank > 0 => {}
            Event::Progress { message } => self.watcher.see(&Update::Progress(&message)),
            Event::Note { message } => {
                self.notes += 1;
                if self.notes > NOTES {
                    return self.too_much("notes without end");
                }
                let event = self.record.event(at, EventKind::Note, &told(&message));
                self.show(&event);
            }
            Event::Ready { parameters } => {
                self.record.record_mut().parameters = Some(parameters);
                if self.fleet.ready() {
                    return self.attempt(at);
                }
            }
            Event::Buffers { buffers } => self.fleet.exchanged(rank, buffers),
            Event::Phase(phase) if rank > 0 => {
                self.fleet.reached(rank, passed(&phase));
                if let Some(other) = self.fleet.other(rank) {
                    other.record.phase(at, &phase);
                }
            }
            Event::Step(step) if rank > 0 => {
                if let Some(other) = self.fleet.other(rank) {
                    other.record.step(at, &step);
                }
            }
            Event::Phase(phase) => {
                self.fleet.reached(rank, passed(&phase));
                self.record.phase(at, &phase);
                self.warn(phase.process.or(phase.peak_reserved));
                self.watcher.see(&Update::Phase { name: phase.name, step: phase.step, micro_batch: phase.micro_batch });
            }
            Event::Step(step) => {
                let kept = self.record.step(at, &step);
                self.used.steady = true;
                self.watcher.see(&Update::Step(&kept));
                if let Some(message) = numeric(&kept).filter(|_| self.work.trains()) {
                    let event = self.record.event(at, EventKind::Numeric, &message);
                    self.show(&event);
                }
                self.warn(step.process.or(step.peak_reserved));
            }
            Event::Guard { kind, step, micro_batch, phase, message } => {
                let (kind, what) = match kind {
                    GuardKind::OutOfMemory => (EventKind::OutOfMemory, "out of memory"),
                    GuardKind::Limit => (EventKind::Limit, "the limit was hit"),
                };
                let mut text = match self.work.trains() {
                    true => format!("{what} with micro-batches of {}", self.shape.batch),
                    false => format!("{what} with a batch of {}", self.shape.batch),
                };
                if self.fleet.is_several() {
                    text.push_str(&format!(" on rank {rank}"));
                }
                if let Some(phase) = phase {
                    text.push_str(&format!(", in {}", phase.as_str()));
                }
                if let Some(step) = step {
                    text.push_str(&format!(" of {} {step}", self.work.noun()));
                }
                if let Some(micro_batch) = micro_batch.filter(|_| self.work.trains()) {
                    text.push_str(&format!(" (micro-batch {micro_batch})"));
                }
                let event = self.record.event(at, kind, &format!("{text}: {}", told(&message)));
                self.show(&event);
            }
            Event::AttemptEnd { outcome, peak_allocated, peak_reserved, retries, .. } => {
                let record = self.fleet.other(rank).map_or(&mut self.record, |other| &mut other.record);
                record.end_attempt(at, outcome.into(), peak_allocated, peak_reserved);
                if let Some(retries @ 1..) = retries {
                    let of = if self.fleet.is_several() { format!("rank {rank}: ") } else { String::new() };
                    let text = format!("{of}the allocator gave cached memory back to make room {retries} time(s)");
                    self.say(EventKind::Note, [text]);
                }
                if let Some(outcome) = self.fleet.ended(rank, outcome) {
                    self.record.set_outcome(outcome.into());
                    self.decide(at, outcome);
                }
            }
            Event::Error { kind, message, hint, traceback } => {
                let end = self.worker.finish();
                let detail = traceback.unwrap_or(end.stderr);
                let hint = hint.unwrap_or_default();
                let mut message = of_rank(self.fleet.is_several(), rank, kind, message);
                if kind == ErrorKind::Lost && !self.fleet.last(rank).is_empty() {
                    message.push_str(&format!(", after {}", self.fleet.last(rank)));
                }
                if kind == ErrorKind::OutOfMemory {
                    return self.no_model(at, &message, &hint);
                }
                return self.failed_as(told(&message), &message, &hint, &detail);
            }
            Event::Bye => {
                let end = self.worker.finish();
                if end.code != Some(0) {
                    return self.failed(&death(&end).0, "", &end.stderr);
                }
                return Flow::Over;
            }
            // A second greeting says nothing new.
            Event::Hello(_) => {}
        }
        Flow::On
    }

    /// Not even the model fits: no micro-batch will.
    fn no_model(&mut self, at: u64, message: &str, hint: &str) -> Flow {
        self.record.attempt(at, self.shape);
        self.record.end_attempt(at, Outcome::OutOfMemory, None, None);
        let event = self.record.event(at, EventKind::OutOfMemory, &told(message));
        self.show(&event);
        self.watcher.see(&Update::Trouble { problem: message, hint, detail: "" });
        Flow::Over
    }

    /// One of several ranks ran out of memory, and the others wait for it: they are ended with it.
    fn broken_off(&mut self, at: u64, outcome: AttemptOutcome) -> Flow {
        self.worker.kill();
        self.record.set_outcome(outcome.into());
        self.decide(at, outcome);
        Flow::Over
    }

    fn attempt(&mut self, at: u64) -> Flow {
        self.stage = Stage::Running;
        self.warned = false;
        self.used = Used::default();
        let (shape, steps) = (self.shape, self.request.steps);
        self.record.attempt(at, shape);
        self.fleet.attempt(at, shape);
        self.watcher.see(&Update::Attempt { shape, steps });
        let Shape { batch, accumulation, samples } = shape;
        self.worker.send(&Command::Attempt { batch, accumulation, samples, steps });
        Flow::On
    }

    fn decide(&mut self, at: u64, outcome: AttemptOutcome) {
        let raising = self.request.target_utilization.is_some() && outcome == AttemptOutcome::Finished;
        let predicted = |shape| if raising { self.predictor.process(shape) } else { None };
        let process = self.used.process.or(self.record.worker_process()).max(self.record.reserved());
        let utilization = (self.used.sum + self.used.count / 2).checked_div(self.used.count);
        self.attempts.push(Attempted {
            shape: self.shape,
            outcome: outcome.into(),
            utilization,
            process,
            predicted: predicted(self.shape),
            predicted_doubled: predicted(self.shape.doubled()),
            room: Some(self.room),
        });
        let policy = Policy {
            // Who ran out of memory left the others in the midst of an exchange: these processes do not go on.
            adapt: self.request.adapt && !self.fleet.is_several(),
            target_utilization: self.request.target_utilization,
            accumulates: self.work.trains(),
        };
        match policy::next(policy, &self.attempts) {
            policy::Advice::Halve(shape) => {
                let text = format!("{} halved to {}", self.work.batch(), described(self.work, shape));
                self.say(EventKind::Halved, [text]);
                self.shape = shape;
                self.attempt(at);
            }
            policy::Advice::Raise(shape) => {
                let grown = if self.work.trains() && shape.samples > self.shape.samples {
                    format!("; the effective batch grows from {} to {}", self.shape.samples, shape.samples)
                } else {
                    String::new()
                };
                let busy = utilization.unwrap_or_default();
                let (what, shape_said) = (self.work.batch(), described(self.work, shape));
                let text = format!("utilisation {busy} %: {what} raised to {shape_said}{grown}");
                self.say(EventKind::Raised, [text]);
                self.shape = shape;
                self.attempt(at);
            }
            policy::Advice::Stop(why) => {
                if self.fleet.is_several() && outcome != AttemptOutcome::Finished {
                    let text = "on several cards the micro-batch is not halved: give a smaller one (--batch)";
                    self.say(EventKind::Note, [text.to_owned()]);
                }
                let what = self.work.batch();
                let told = self.sampling.as_ref().is_some_and(|s| s.latest().utilization.is_some());
                self.say(
                    EventKind::Note,
                    reason(why, raising, utilization.is_none().then_some(told))
                        .map(|words| words.replace("BATCH", what)),
                );
                self.stage = Stage::Finishing;
                self.worker.send(&Command::Finish);
            }
        }
    }

    /// Puts the record together.
    fn end(mut self) -> Measurement {
        self.worker.kill();
        if let Some(outcome) = self.outcome {
            let at = self.clock.now();
            match self.stage {
                Stage::Loading => {
                    self.record.attempt(at, self.shape);
                    self.record.end_attempt(at, outcome, None, None);
                }
                Stage::Running => self.record.end_attempt(at, outcome, None, None),
                Stage::Finishing => {}
            }
        }
        if !self.record.record().device.hollow && self.record.record().computes_nothing() {
            let what = "every loss is exactly 0: the card computes nothing, or not what it should";
            self.say(EventKind::Warning, [what.to_owned()]);
        }
        let sampled = self.sampling.take().map(Sampling::stop);
        let record = self.record.finish(sampled.as_ref(), &self.clock);
        let mut record = self.fleet.together(record, &self.clock);
        record.estimate = predict::value(&self.predictor);
        record.scrub(&telling::names());
        self.watcher.see(&Update::End);
        record
    }
}

/// `forward of step 2`.
fn passed(phase: &Phase) -> String {
    let step = phase.step.map(|step| format!(" of step {step}")).unwrap_or_default();
    format!("{}{step}", phase.name.as_str())
}

fn described(work: Work, shape: Shape) -> String {
    if !work.trains() {
        return shape.batch.to_string();
    }
    format!("{}: {} in a step, {} samples", shape.batch, shape.accumulation, shape.samples)
}

/// Why nothing more is tried, where that needs words; `BATCH` stands for what the batch is called. `unknown`: how much the
/// device was used is not known, and whether anything tells of it at all.
const fn reason(why: Why, raising: bool, unknown: Option<bool>) -> Option<&'static str> {
    match why {
        Why::OneSampleDoesNotFit => Some("not even one sample fits"),
        Why::SmallerOneStands => Some("the smaller BATCH that finished is the result"),
        Why::NoRoom if raising => Some("a larger BATCH would come too near to the end of the memory"),
        Why::UtilizationUnknown => match unknown {
            Some(true) => Some(
                "the BATCH was not raised: it was over too soon to tell how much the device is used; give more --steps",
            ),
            Some(false) => Some("the BATCH was not raised: nothing tells how much the device is used"),
            None => None,
        },
        _ => None,
    }
}

/// What is wrong with a step's numbers.
fn numeric(step: &plimsoll_core::measurement::MeasuredStep) -> Option<String> {
    match (step.skipped, step.loss) {
        (true, _) => Some(format!("GradScaler skipped step {}: gradients were not finite", step.step)),
        (false, None) => Some(format!("the loss of step {} was not finite", step.step)),
        (false, Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_too_short_to_tell_is_not_one_that_nothing_tells_of() {
        let said = |unknown| reason(Why::UtilizationUnknown, true, unknown).unwrap_or_default();
        assert!(said(Some(true)).contains("give more --steps"));
        assert!(said(Some(false)).contains("nothing tells how much"));
        assert_eq!(said(None), "");
    }
}
