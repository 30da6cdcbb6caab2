//! One worker from start to end.

mod attempts;
mod failures;
mod hearing;

use std::time::{Duration, Instant};

use plimsoll_core::measurement::{DeviceKind, Event as Kept, EventKind, Outcome, Sample};
use plimsoll_core::{Bytes, Measurement};

use super::fleet::{Fleet, Other};
use super::greeting::{Early, Greeting};
use super::others::{Others, others};
use super::predict::{self, Predictor};
use super::record::Builder;
use super::sensors::{Sampling, Sensors, Taken};
use super::telling::{self, told};
use super::worker_clock::WorkerClock;
use super::{Busy, Request, Update, Watcher, Work};
use crate::exit::Failure;
use crate::interrupt;
use crate::policy::{self, Attempted, Shape};
use crate::scripts::WORKER;
use crate::worker::{Hello, Job, Launch, Line, Next, Python, Worker};

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
