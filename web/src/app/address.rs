//! The address bar is the share link.

use std::cell::{Cell, RefCell};

use leptos::prelude::*;
use plimsoll_core::scenario::{Decoded, Link};
use plimsoll_core::{Measurement, Scenario};
use plimsoll_web::compare::view::View;
use plimsoll_web::engine;
use wasm_bindgen::prelude::*;

use super::logbook::Logbook;
use super::planner::Planner;
use super::{browser, route};

/// How long, in ms, the address waits for typing to rest: browsers limit how often it may be rewritten.
const REST: i32 = 120;

thread_local! {
    static TIMER: Cell<Option<i32>> = const { Cell::new(None) };

    /// Whether what is not written yet is a step of its own, that the browser's Back leads away from.
    static STEP: Cell<bool> = const { Cell::new(false) };

    /// The measurement the address carries, packed, and the scenario it is of.
    static CARRIED: RefCell<Option<(Scenario, String)>> = const { RefCell::new(None) };
}

/// The scenario of the address bar and what was wrong with it; the opening scenario where there is none.
pub fn read() -> Decoded {
    let location = web_sys::window().map(|w| w.location());
    let part = |get: fn(&web_sys::Location) -> Result<String, JsValue>| {
        location.as_ref().and_then(|l| get(l).ok()).unwrap_or_default()
    };
    let link = format!("{}{}", part(web_sys::Location::search), part(web_sys::Location::hash));
    // The compare page's place says nothing about the scenario.
    let hash = part(web_sys::Location::hash);
    let link = if View::is_at(&hash) { part(web_sys::Location::search) } else { link };
    // An in-page anchor such as the skip link's is no scenario.
    if part(web_sys::Location::search).is_empty() && !link.contains('=') {
        return Decoded { scenario: engine::opening(), notices: Vec::new() };
    }
    Link::decode(&link)
}

/// The whole link to a scenario.
pub fn link(scenario: &Scenario) -> String {
    let base = web_sys::window()
        .and_then(|w| {
            let location = w.location();
            Some(format!("{}{}", location.origin().ok()?, location.pathname().ok()?))
        })
        .unwrap_or_default();
    let link = engine::encode(scenario);
    let carried = CARRIED.with_borrow(|carried| {
        let (of, packed) = carried.as_ref()?;
        let sign = if link.contains('#') { '&' } else { '#' };
        (of == scenario).then(|| format!("{sign}r={packed}"))
    });
    format!("{base}{link}{}", carried.unwrap_or_default())
}

/// Takes in the measurement that the address carries, if it carries one.
pub fn carry(logbook: Logbook) {
    let hash = route::hash();
    match Measurement::in_link(&hash) {
        None => {}
        Some(Ok(record)) => {
            let scenario = read().scenario;
            CARRIED.set(record.packed().map(|packed| (scenario, packed)));
            logbook.keep(record);
        }
        Some(Err(error)) => {
            let problem = format!("The link's measurement was left out. {}; {}.", error.problem, error.hint);
            logbook.refused.set(Some(problem));
        }
    }
}

/// Writes the address when typing rests. A change that is a `step` gets a place of its own in the browser's history, which
/// Back leads away from; what only goes on with the change before takes that one's place.
pub fn write_soon(planner: Planner, step: bool) {
    STEP.set(STEP.get() || step);
    if let Some(timer) = TIMER.take() {
        browser::cancel(timer);
    }
    TIMER.set(browser::after(REST, move || {
        TIMER.set(None);
        // The other page's place is in the address.
        if View::is_at(&route::hash()) {
            return;
        }
        let link = planner.scenario.with_untracked(link);
        let there = web_sys::window().and_then(|w| w.location().href().ok()).is_some_and(|href| href == link);
        // Refused only when written too often; the next change writes it again.
        match STEP.replace(false) {
            true if !there => route::push(&link),
            _ => route::replace(&link),
        }
    }));
}

/// Follows the address when a person edits it or goes back.
pub fn follow(planner: Planner) {
    write_soon(planner, false);
    let changed = Closure::<dyn FnMut()>::new(move || {
        let address = web_sys::window().and_then(|w| w.location().href().ok()).unwrap_or_default();
        if View::is_at(&route::hash()) {
            return;
        }
        let Decoded { scenario, notices } = read();
        if address != planner.scenario.with_untracked(link) && !address.ends_with("#verdict") {
            planner.notices.set(notices);
            planner.follow(scenario);
        }
    });
    if let Some(window) = web_sys::window() {
        for event in ["popstate", "hashchange"] {
            let _ = window.add_event_listener_with_callback(event, changed.as_ref().unchecked_ref());
        }
    }
    changed.forget();
}
