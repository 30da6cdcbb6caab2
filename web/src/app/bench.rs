//! A worker, what waits for it, and what it is at.

use std::collections::VecDeque;

use plimsoll_web::neighbours::Neighbour;
use plimsoll_web::protocol::Request;
use wasm_bindgen::prelude::*;
use web_sys::{HtmlLinkElement, MessageEvent, Worker, WorkerOptions, WorkerType};

use super::browser;

/// After this time, in ms, work nobody waits for any more is stopped by stopping the worker.
const STALE: f64 = 900.0;

/// How often a worker that failed is started again.
const RESTARTS: u32 = 3;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Topic {
    /// The present scenario.
    Reading,
    /// Its largest micro-batch.
    Largest,
    /// One of its neighbours.
    Neighbour(&'static Neighbour),
    /// What fits around it.
    Grid,
    /// Recipes that fit.
    Fit,
    /// Plans that spread it over its cards.
    Plans,
    /// Cards that hold it.
    Cards,
    /// The cursor's point.
    Alive,
    /// A part of the timeline.
    Stretch,
    /// A plan beside the present scenario, by its [`Plan::id`](plimsoll_web::plans::Plan::id).
    Beside(u64),
}

impl Topic {
    /// Whether it is of the present scenario, and of no use with another.
    pub const fn passes(self) -> bool {
        !matches!(self, Self::Beside(_))
    }

    /// Which worker answers.
    pub const fn hand(self) -> Hand {
        match self {
            Self::Reading | Self::Alive | Self::Stretch => Hand::Reader,
            _ => Hand::Searcher,
        }
    }
}

/// Which of the workers answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// What somebody waits for: it keeps the run of the last reading.
    Reader,
    /// What takes its time.
    Searcher,
}

/// A request that waits.
pub struct Job {
    pub topic: Topic,
    pub request: Request,
}

/// A request that a worker is at.
pub struct Flight {
    pub id: u64,
    pub topic: Topic,
    pub since: f64,
    /// Whether it is of an older scenario.
    pub stale: bool,
}

/// A worker, what waits for it, and what it is at.
#[derive(Default)]
pub struct Bench {
    pub worker: Option<Worker>,
    pub ready: bool,
    pub failures: u32,
    pub queue: VecDeque<Job>,
    pub flight: Option<Flight>,
}

impl Bench {
    /// Forgets what is of an older scenario; whether it was at that so long that it had to be stopped.
    pub fn drop_all(&mut self) -> bool {
        self.queue.retain(|job| !job.topic.passes());
        let Some(flight) = self.flight.as_mut().filter(|flight| flight.topic.passes()) else { return false };
        flight.stale = true;
        let stopped = browser::now() - flight.since > STALE;
        if stopped {
            self.stop();
        }
        stopped
    }

    pub fn stop(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.terminate();
        }
        self.ready = false;
        self.flight = None;
    }

    /// Whether workers failed too often here, so that the page computes itself.
    pub const fn without_worker(&self) -> bool {
        self.failures > RESTARTS
    }

    /// There is no worker in this browser.
    pub const fn give_up(&mut self) {
        self.failures = RESTARTS + 1;
    }
}

/// A worker with the same script and wasm as the page's own, which the head of the page names. `hear` is given what it posts,
/// `fail` what went wrong in it.
///
/// # Errors
/// Why there is none: a sentence.
pub fn start_worker(hear: impl Fn(String) + 'static, fail: impl Fn(&str) + 'static) -> Result<Worker, String> {
    let options = WorkerOptions::new();
    options.set_type(WorkerType::Module);
    let worker = Worker::new_with_options("worker.js", &options).map_err(|e| format!("{e:?}"))?;

    let message = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        if let Some(text) = event.data().as_string() {
            hear(text);
        }
    });
    worker.set_onmessage(Some(message.as_ref().unchecked_ref()));
    message.forget();

    let error = Closure::<dyn FnMut(web_sys::Event)>::new(move |event: web_sys::Event| {
        let problem = js_sys::Reflect::get(&event, &JsValue::from_str("message")).ok().and_then(|m| m.as_string());
        fail(&problem.unwrap_or_else(|| "the worker could not start".to_owned()));
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
    Ok(worker)
}
