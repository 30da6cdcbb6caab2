//! Who computes what: short runs at once on the page, everything else in the worker, in order, newest scenario first.

use std::cell::RefCell;
use std::collections::VecDeque;

use leptos::prelude::*;
use plimsoll_core::estimate::fit::Allowed;
use plimsoll_core::{Error, Scenario};
use plimsoll_web::engine;
use plimsoll_web::errand::{Clerk, Errand, Question, Reply, weight};
use plimsoll_web::heatmap;
use plimsoll_web::marks::Mark;
use wasm_bindgen::prelude::*;
use web_sys::{HtmlLinkElement, MessageEvent, Worker, WorkerOptions, WorkerType};

use super::browser;
use super::planner::{Planner, Rung};

/// Layer passes a run may have to be done on the page: a model of about 8 B parameters without accumulation.
const HEAVY: u64 = 40;

/// Runs that take longer than this on the page, in ms, are left to the worker: the rest of a 16 ms frame is the
/// drawing's.
const PATIENCE: f64 = 10.0;

/// After so many slow runs in a row it is the machine, and not the browser still compiling the wasm.
const CERTAIN: u32 = 3;

/// How long typing must rest, in ms, before the neighbours of the scenario are run.
const REST: i32 = 140;

/// After this time, in ms, work nobody waits for any more is stopped by stopping the worker.
const STALE: f64 = 900.0;

/// How often a worker that failed is started again.
const RESTARTS: u32 = 3;

/// What an errand is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Topic {
    /// The present scenario.
    Reading,
    /// Its largest micro-batch.
    Largest,
    /// One of its neighbours.
    Rung(&'static Mark),
    /// What fits around it.
    Sheet,
    /// Recipes that fit.
    Fit,
    /// Cards that hold it.
    Cards,
    /// The cursor's point.
    Alive,
}

struct Job {
    topic: Topic,
    errand: Errand,
}

struct Flight {
    id: u64,
    topic: Topic,
    since: f64,
    stale: bool,
}

#[derive(Default)]
struct Desk {
    planner: Option<Planner>,
    clerk: Clerk,
    worker: Option<Worker>,
    ready: bool,
    failures: u32,
    queue: VecDeque<Job>,
    flight: Option<Flight>,
    rest: Option<i32>,
    next: u64,
    heavy: u64,
    slow: u32,
    run_in_worker: bool,
    /// What the sheet on the page was made for, or is being made for.
    sheet_of: Option<Scenario>,
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk::default());
}

fn with<T>(action: impl FnOnce(&mut Desk) -> T) -> T {
    DESK.with(|desk| action(&mut desk.borrow_mut()))
}

/// Opens the desk; the worker starts while the page is painted.
pub fn open(planner: Planner) {
    with(|desk| {
        desk.planner = Some(planner);
        desk.heavy = HEAVY;
    });
    browser::after(0, spawn);
}

/// Runs the scenario, and, when typing rests, its neighbours. Whatever was under way for another one is dropped.
pub fn sound(planner: Planner, scenario: &Scenario) {
    let heavy = with(|desk| {
        desk.drop_all();
        weight(engine::layers(scenario), scenario.training.accumulation) >= desk.heavy
    });
    planner.largest.set(None);
    planner.fit.set(None);
    planner.cards.set(None);
    let neighbours = Mark::around(scenario);
    planner.rungs.update(|rungs| {
        // A rung that stays keeps its last place until it is known anew: no jumping about.
        *rungs = neighbours
            .iter()
            .map(|(mark, _)| {
                let known = rungs.iter().find(|r| r.mark == *mark).and_then(|r| r.depth.clone());
                Rung { mark, depth: known }
            })
            .collect();
    });

    if heavy {
        planner.pending.set(true);
        with(|desk| {
            desk.run_in_worker = true;
            desk.push(Topic::Reading, Question::Sound(scenario.to_value()));
        });
        pump();
    } else {
        let start = browser::now();
        let outcome = with(|desk| {
            desk.run_in_worker = false;
            desk.clerk.sound(scenario)
        });
        let slow = browser::now() - start > PATIENCE;
        with(|desk| {
            desk.slow = if slow { desk.slow + 1 } else { 0 };
            if desk.slow >= CERTAIN {
                let seen = weight(engine::layers(scenario), scenario.training.accumulation);
                desk.heavy = desk.heavy.min(seen);
                desk.slow = 0;
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

    let sheet = needs_sheet(planner, scenario);
    planner.sheet_pending.set(sheet);
    let scenario = scenario.clone();
    let timer = browser::after(REST, move || {
        with(|desk| {
            desk.rest = None;
            desk.push(Topic::Largest, Question::Largest(scenario.to_value()));
            desk.push(Topic::Fit, Question::Fit(scenario.to_value(), Allowed::default()));
            for (mark, next) in &neighbours {
                desk.push(Topic::Rung(mark), Question::Peak(next.to_value()));
            }
            if sheet {
                desk.sheet_of = Some(heatmap::base(&scenario));
                desk.push(Topic::Sheet, Question::Sheet(scenario.to_value()));
            }
        });
        pump();
    });
    with(|desk| desk.rest = timer);
}

/// Whether the sheet on the page is another one's: a batch or a sequence that it shows is no reason for a new one.
fn needs_sheet(planner: Planner, scenario: &Scenario) -> bool {
    let of_this = with(|desk| desk.sheet_of.as_ref() == Some(&heatmap::base(scenario)));
    let shown = planner.sheet.with_untracked(|s| s.as_ref().is_some_and(|s| s.shows(scenario)));
    !(of_this && shown) || planner.sheet_pending.get_untracked()
}

/// Asks once more which recipes fit, with more allowed.
pub fn fit(scenario: &Scenario, allowed: Allowed) {
    with(|desk| {
        desk.queue.retain(|job| job.topic != Topic::Fit);
        desk.push_first(Topic::Fit, Question::Fit(scenario.to_value(), allowed));
    });
    pump();
}

/// Asks which cards hold the present scenario.
pub fn cards(scenario: &Scenario) {
    with(|desk| {
        desk.queue.retain(|job| job.topic != Topic::Cards);
        desk.push_first(Topic::Cards, Question::Cards(scenario.to_value()));
    });
    pump();
}

/// Asks what is alive after `event` events of the present run.
pub fn alive(planner: Planner, event: u32) {
    let here = with(|desk| {
        if desk.run_in_worker {
            desk.queue.retain(|job| job.topic != Topic::Alive);
            desk.push_first(Topic::Alive, Question::Alive(event));
            None
        } else {
            Some(desk.clerk.answer(&Question::Alive(event)))
        }
    });
    match here {
        Some(answer) => planner.receive(Topic::Alive, answer),
        None => pump(),
    }
}

impl Desk {
    fn errand(&mut self, topic: Topic, question: Question) -> Job {
        self.next += 1;
        Job { topic, errand: Errand { id: self.next, question } }
    }

    fn push(&mut self, topic: Topic, question: Question) {
        let job = self.errand(topic, question);
        self.queue.push_back(job);
    }

    fn push_first(&mut self, topic: Topic, question: Question) {
        let job = self.errand(topic, question);
        self.queue.push_front(job);
    }

    /// Forgets everything that was asked for an older scenario.
    fn drop_all(&mut self) {
        self.queue.clear();
        if let Some(timer) = self.rest.take() {
            browser::cancel(timer);
        }
        if let Some(flight) = &mut self.flight {
            flight.stale = true;
            if browser::now() - flight.since > STALE {
                self.stop();
                browser::after(0, spawn);
            }
        }
    }

    fn stop(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.terminate();
        }
        self.ready = false;
        self.flight = None;
    }

    fn without_worker(&self) -> bool {
        self.failures > RESTARTS
    }
}

/// Hands the next errand out, when there is one and nothing is under way.
fn pump() {
    let here = with(|desk| {
        if desk.flight.is_some() || desk.queue.is_empty() || !(desk.ready || desk.without_worker()) {
            return None;
        }
        let job = desk.queue.pop_front()?;
        desk.flight = Some(Flight { id: job.errand.id, topic: job.topic, since: browser::now(), stale: false });
        if desk.without_worker() {
            return Some(job);
        }
        let text = serde_json::to_string(&job.errand).unwrap_or_default();
        if let Some(worker) = &desk.worker {
            let _ = worker.post_message(&JsValue::from_str(&text));
        }
        None
    });
    if let Some(job) = here {
        // No worker in this browser: one errand at a time, and the page breathes between them.
        browser::after(0, move || {
            let answer = with(|desk| desk.clerk.answer(&job.errand.question));
            land(Reply { id: job.errand.id, answer });
        });
    }
}

/// An answer came in.
fn land(reply: Reply) {
    let known = with(|desk| {
        let flight = desk.flight.take_if(|f| f.id == reply.id)?;
        (!flight.stale).then_some((desk.planner?, flight.topic))
    });
    if let Some((planner, topic)) = known {
        planner.receive(topic, reply.answer);
    }
    pump();
}

/// The worker failed: its errand is answered with a fault, and another one is started a few times.
fn founder(problem: &str) {
    let lost = with(|desk| {
        let flight = desk.flight.take();
        desk.stop();
        desk.failures += 1;
        flight.filter(|f| !f.stale).map(|f| f.topic).zip(desk.planner)
    });
    if let Some((topic, planner)) = lost {
        let hint = "change the scenario, or use `plimsoll estimate` in a terminal";
        let fault = Error::new("planner", format!("the computation stopped: {problem}"), hint);
        planner.receive(topic, Err(fault));
    }
    if with(|desk| desk.without_worker()) { pump() } else { spawn() }
}

/// Starts the worker: the same script and wasm as the page's own, which the head of the page names.
fn spawn() {
    let started = start_worker();
    if let Err(problem) = started {
        with(|desk| desk.failures = RESTARTS + 1);
        web_sys::console::warn_1(&JsValue::from_str(&format!("no worker, computing on the page: {problem}")));
        pump();
    }
}

fn start_worker() -> Result<(), String> {
    let options = WorkerOptions::new();
    options.set_type(WorkerType::Module);
    let worker = Worker::new_with_options("worker.js", &options).map_err(|e| format!("{e:?}"))?;

    let message = Closure::<dyn FnMut(MessageEvent)>::new(|event: MessageEvent| {
        let Some(text) = event.data().as_string() else {
            return;
        };
        if text == "ready" {
            with(|desk| desk.ready = true);
            pump();
        } else if let Ok(reply) = serde_json::from_str::<Reply>(&text) {
            land(reply);
        }
    });
    worker.set_onmessage(Some(message.as_ref().unchecked_ref()));
    message.forget();

    let error = Closure::<dyn FnMut(web_sys::Event)>::new(|event: web_sys::Event| {
        let problem = js_sys::Reflect::get(&event, &JsValue::from_str("message")).ok().and_then(|m| m.as_string());
        founder(&problem.unwrap_or_else(|| "the worker could not start".to_owned()));
    });
    worker.set_onerror(Some(error.as_ref().unchecked_ref()));
    error.forget();

    let start = js_sys::Object::new();
    for (name, selector) in
        [("script", "link[rel=modulepreload]"), ("wasm", "link[rel=preload][type='application/wasm']")]
    {
        let link = browser::document()
            .and_then(|d| d.query_selector(selector).ok().flatten())
            .and_then(|e| e.dyn_into::<HtmlLinkElement>().ok())
            .ok_or_else(|| format!("the page has no {selector}"))?;
        js_sys::Reflect::set(&start, &JsValue::from_str(name), &JsValue::from_str(&link.href()))
            .map_err(|e| format!("{e:?}"))?;
    }
    worker.post_message(&start).map_err(|e| format!("{e:?}"))?;
    with(|desk| desk.worker = Some(worker));
    Ok(())
}
