//! Who computes what: short runs at once on the page, longer ones in a worker, and what is searched for around them in
//! another, so that no answer to what was typed waits for a search. Each has one request at a time, in order, newest scenario
//! first.

use std::cell::RefCell;

use leptos::prelude::*;
use plimsoll_core::estimate::fit::{Allowed, Freedom};
use plimsoll_core::{Error, Scenario};
use plimsoll_web::engine;
use plimsoll_web::heatmap;
use plimsoll_web::neighbours::Neighbour;
use plimsoll_web::protocol::{Question, Request, Responder, Response, asked, weight};
use plimsoll_web::reading::Reading;
use plimsoll_web::window::Stretch;
use wasm_bindgen::prelude::*;

use super::bench::{self, Bench, Flight, Hand, Job, Topic};
use super::browser;
use super::planner::Planner;

/// Layer passes that a run must have to be left to the worker from the start: all models of the catalog are done on the
/// page without accumulation. docs/performance.md has how long such runs take in WebAssembly.
const HEAVY: u64 = 128;

/// Runs that take longer than this on the page, in ms, are left to the worker. The way there and back costs about as much:
/// the page is drawn once more meanwhile, and the reading is written and read as JSON.
const PATIENCE: f64 = 25.0;

/// After so many slow runs in a row it is the machine, and not the browser still compiling the wasm.
const CERTAIN: u32 = 6;

/// How long typing must rest, in ms, before the neighbours of the scenario are run.
const REST: i32 = 140;

#[derive(Default)]
struct Scheduler {
    planner: Option<Planner>,
    responder: Responder,
    reader: Bench,
    searcher: Bench,
    rest: Option<i32>,
    next: u64,
    heavy: u64,
    slow: u32,
    run_in_worker: bool,
    /// What was run before there was a planner.
    ahead: Option<(Scenario, Reading)>,
    /// What the grid on the page was made for, or is being made for.
    grid_of: Option<Scenario>,
}

thread_local! {
    static SCHEDULER: RefCell<Scheduler> = RefCell::new(Scheduler::default());
}

fn with<T>(action: impl FnOnce(&mut Scheduler) -> T) -> T {
    SCHEDULER.with(|scheduler| action(&mut scheduler.borrow_mut()))
}

/// Opens the scheduler.
pub fn open(planner: Planner) {
    with(|scheduler| {
        scheduler.planner = Some(planner);
        scheduler.heavy = HEAVY;
    });
}

/// Starts the worker that is needed soon: the other one is started by the first run that is left to it.
pub fn start() {
    spawn(Hand::Searcher);
}

/// Runs the scenario that the page opens with before there is a planner, which then need not; none where it is refused, or for
/// a worker to run.
pub fn ahead(scenario: &Scenario) -> Option<Reading> {
    if weight(engine::layers(scenario), scenario.training.accumulation) >= HEAVY {
        return None;
    }
    let reading = with(|scheduler| scheduler.responder.read(scenario)).ok()?;
    with(|scheduler| scheduler.ahead = Some((scenario.clone(), reading.clone())));
    Some(reading)
}

/// Runs the scenario, and, when typing rests, its neighbours. Whatever was under way for another one is dropped.
pub fn run(planner: Planner, scenario: &Scenario) {
    let heavy = with(|scheduler| {
        scheduler.drop_all();
        weight(engine::layers(scenario), scenario.training.accumulation) >= scheduler.heavy
    });
    planner.largest.set(None);
    planner.fit.set(None);
    planner.plans.set(None);
    planner.planned.set(None);
    planner.cards.set(None);

    if heavy {
        planner.pending.set(true);
        with(|scheduler| {
            scheduler.run_in_worker = true;
            scheduler.push(Topic::Reading, Question::Reading(asked(scenario)));
        });
        pump(Hand::Reader);
    } else {
        let start = browser::now();
        let outcome = with(|scheduler| {
            scheduler.run_in_worker = false;
            match scheduler.ahead.take() {
                Some((of, reading)) if of == *scenario => Ok(reading),
                _ => scheduler.responder.read(scenario),
            }
        });
        let slow = browser::now() - start > PATIENCE;
        with(|scheduler| {
            scheduler.slow = if slow { scheduler.slow + 1 } else { 0 };
            if scheduler.slow >= CERTAIN {
                let seen = weight(engine::layers(scenario), scenario.training.accumulation);
                scheduler.heavy = scheduler.heavy.min(seen);
                scheduler.slow = 0;
            }
        });
        match outcome {
            Ok(reading) => planner.read(reading),
            Err(fault) => {
                planner.pending.set(false);
                planner.fault.set(Some(fault));
                planner.rungs.set(Vec::new());
                return;
            }
        }
    }

    let grid = needs_grid(planner, scenario);
    planner.grid_pending.set(grid);
    let scenario = scenario.clone();
    let timer = browser::after(REST, move || {
        // Where nothing was painted since: the page is not seen, or its reading is awaited.
        planner.catch_up();
        let neighbours = Neighbour::around(&scenario);
        with(|scheduler| {
            scheduler.rest = None;
            scheduler.push(Topic::Largest, Question::Largest(asked(&scenario)));
            if scenario.parallel.gpus > 1 {
                // Of a run that fits nobody asked yet; while its reading is awaited, the one there is another's.
                if !planner.pending.get_untracked() && planner.sits_too_deep() {
                    scheduler.push(Topic::Plans, Question::Plans(asked(&scenario), Freedom::default()));
                }
            } else {
                scheduler.push(Topic::Fit, Question::Fit(asked(&scenario), Allowed::default()));
            }
            for (neighbour, next) in &neighbours {
                scheduler.push(Topic::Neighbour(neighbour), Question::Peak(asked(next)));
            }
            if grid {
                scheduler.grid_of = Some(heatmap::base(&scenario));
                scheduler.push(Topic::Grid, Question::Grid(asked(&scenario)));
            }
        });
        pump(Hand::Searcher);
    });
    with(|scheduler| scheduler.rest = timer);
}

/// Whether the grid on the page is another one's: a batch or a sequence that it shows is no reason for a new one.
fn needs_grid(planner: Planner, scenario: &Scenario) -> bool {
    let of_this = with(|scheduler| scheduler.grid_of.as_ref() == Some(&heatmap::base(scenario)));
    let shown = planner.grid.with_untracked(|s| s.as_ref().is_some_and(|grid| heatmap::shows(grid, scenario)));
    !(of_this && shown) || planner.grid_pending.get_untracked()
}

/// Asks once more which recipes fit, with more allowed.
pub fn fit(scenario: &Scenario, allowed: Allowed) {
    with(|scheduler| {
        scheduler.push_first(Topic::Fit, Question::Fit(asked(scenario), allowed));
    });
    pump(Hand::Searcher);
}

/// Whether typing has rested, so that neighbours were asked for.
pub fn rests() -> bool {
    with(|scheduler| scheduler.rest.is_none())
}

/// Asks for plans, or for the next piece of the search for them.
pub fn plans(scenario: &Scenario) {
    with(|scheduler| {
        scheduler.push_first(Topic::Plans, Question::Plans(asked(scenario), Freedom::default()));
    });
    pump(Hand::Searcher);
}

/// Asks which cards hold the present scenario.
pub fn cards(scenario: &Scenario) {
    with(|scheduler| {
        scheduler.push_first(Topic::Cards, Question::Cards(asked(scenario)));
    });
    pump(Hand::Searcher);
}

/// Asks for the whole reading of a plan, after all that the present scenario wants.
pub fn beside(id: u64, scenario: &Scenario) {
    with(|scheduler| scheduler.push(Topic::Beside(id), Question::Beside(asked(scenario))));
    pump(Hand::Searcher);
}

/// Asks what is alive after `event` events of the present run.
pub fn alive(planner: Planner, event: u32) {
    of_the_run(planner, Topic::Alive, Question::Alive(event));
}

/// Asks for a part of the present run's timeline.
pub fn stretch(planner: Planner, stretch: Stretch) {
    of_the_run(planner, Topic::Stretch, Question::Stretch(stretch));
}

/// Asks about the run that is kept, where that is: on the page, or in the worker, which only the last question reaches.
fn of_the_run(planner: Planner, topic: Topic, question: Question) {
    let here = with(|scheduler| {
        if scheduler.run_in_worker {
            scheduler.push_first(topic, question);
            None
        } else {
            Some(scheduler.responder.answer(&question))
        }
    });
    match here {
        Some(answer) => planner.receive(topic, answer),
        None => pump(topic.hand()),
    }
}

impl Scheduler {
    fn request(&mut self, topic: Topic, question: Question) -> Job {
        self.next += 1;
        Job { topic, request: Request { id: self.next, question } }
    }

    fn push(&mut self, topic: Topic, question: Question) {
        let job = self.request(topic, question);
        self.bench(topic.hand()).queue.push_back(job);
    }

    /// In place of what was asked last of the same.
    fn push_first(&mut self, topic: Topic, question: Question) {
        let job = self.request(topic, question);
        let queue = &mut self.bench(topic.hand()).queue;
        queue.retain(|job| job.topic != topic);
        queue.push_front(job);
    }

    const fn bench(&mut self, hand: Hand) -> &mut Bench {
        match hand {
            Hand::Reader => &mut self.reader,
            Hand::Searcher => &mut self.searcher,
        }
    }

    /// Forgets everything that was asked for an older scenario.
    fn drop_all(&mut self) {
        if let Some(timer) = self.rest.take() {
            browser::cancel(timer);
        }
        for hand in [Hand::Reader, Hand::Searcher] {
            if self.bench(hand).drop_all() {
                browser::after(0, move || spawn(hand));
            }
        }
    }
}

/// Hands the next request out, when there is one and nothing is under way. A worker that nobody needed yet is started.
fn pump(hand: Hand) {
    let (here, start) = with(|scheduler| {
        let bench = scheduler.bench(hand);
        if bench.flight.is_some() || bench.queue.is_empty() {
            return (None, false);
        }
        if !bench.ready && !bench.without_worker() {
            return (None, bench.worker.is_none());
        }
        let Some(job) = bench.queue.pop_front() else { return (None, false) };
        bench.flight = Some(Flight { id: job.request.id, topic: job.topic, since: browser::now(), stale: false });
        if bench.without_worker() {
            return (Some(job), false);
        }
        let text = serde_json::to_string(&job.request).unwrap_or_default();
        if let Some(worker) = &bench.worker {
            let _ = worker.post_message(&JsValue::from_str(&text));
        }
        (None, false)
    });
    if let Some(job) = here {
        // No worker in this browser: one request at a time, and the page breathes between them.
        browser::after(0, move || {
            let answer = with(|scheduler| scheduler.responder.answer(&job.request.question));
            land(hand, Response { id: job.request.id, answer });
        });
    }
    if start {
        spawn(hand);
    }
}

/// An answer came in.
fn land(hand: Hand, response: Response) {
    let known = with(|scheduler| {
        let flight = scheduler.bench(hand).flight.take_if(|f| f.id == response.id)?;
        (!flight.stale).then_some((scheduler.planner?, flight.topic))
    });
    if let Some((planner, topic)) = known {
        planner.receive(topic, response.answer);
    }
    pump(hand);
}

/// A worker failed: its request is answered with a fault, and another one is started a few times.
fn founder(hand: Hand, problem: &str) {
    let (lost, alone) = with(|scheduler| {
        let planner = scheduler.planner;
        let bench = scheduler.bench(hand);
        let flight = bench.flight.take();
        bench.stop();
        bench.failures += 1;
        (flight.filter(|f| !f.stale).map(|f| f.topic).zip(planner), bench.without_worker())
    });
    if let Some((topic, planner)) = lost {
        let hint = "change the scenario, or use `plimsoll estimate` in a terminal";
        let fault = Error::new("planner", format!("the computation stopped: {problem}"), hint);
        planner.receive(topic, Err(fault));
    }
    if alone { pump(hand) } else { spawn(hand) }
}

/// Starts a worker, where there is none: the same script and wasm as the page's own, which the head of the page names.
fn spawn(hand: Hand) {
    if with(|scheduler| scheduler.bench(hand).worker.is_some()) {
        return;
    }
    let hear = move |text: String| {
        if text == "ready" {
            with(|scheduler| scheduler.bench(hand).ready = true);
            pump(hand);
        } else if let Ok(response) = serde_json::from_str::<Response>(&text) {
            land(hand, response);
        }
    };
    match bench::start_worker(hear, move |problem| founder(hand, problem)) {
        Ok(worker) => with(|scheduler| scheduler.bench(hand).worker = Some(worker)),
        Err(problem) => {
            with(|scheduler| scheduler.bench(hand).give_up());
            web_sys::console::warn_1(&JsValue::from_str(&format!("no worker, computing on the page: {problem}")));
            pump(hand);
        }
    }
}
