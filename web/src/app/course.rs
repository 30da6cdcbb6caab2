//! What was changed since the page was opened: the first figure against the present one, undo and redo.

use leptos::prelude::*;
use plimsoll_web::number;
use plimsoll_web::plans::differences;
use wasm_bindgen::prelude::*;

use super::planner::Planner;

/// Levers that are named; the rest is counted.
const NAMED: usize = 4;

#[component]
pub fn Course() -> impl IntoView {
    let planner = Planner::get();
    let trail = planner.trail;
    let undoes = Memo::new(move |_| trail.with(|trail| trail.can_undo()));
    let redoes = Memo::new(move |_| trail.with(|trail| trail.can_redo()));
    listen_for_keys(planner);
    let first = Memo::new(move |_| trail.with(|trail| trail.first().clone()));
    // All levers are looked at: not before the verdict stands.
    let changed = Memo::new(move |_| first.with(|first| planner.below.scenario.with(|now| differences(first, now))));
    let since = move || {
        let changed = changed.get();
        if changed.is_empty() {
            return None;
        }
        let process = planner.below.reading.with(|r| r.as_ref().map(|r| r.process))?;
        let mut names = changed.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        if changed.len() > NAMED {
            names.push_str(&format!(" and {} more", changed.len() - NAMED));
        }
        let figures = planner
            .opened
            .get()
            .map(|first| format!("Opened with {}, now {}. ", number::bytes(first), number::bytes(process)));
        Some(format!("{}Changed: {names}.", figures.unwrap_or_default()))
    };
    view! {
        <div class="course" hidden=move || !(undoes.get() || redoes.get()) data-testid="course">
            <p>{since}</p>
            // Never disabled: a button that is loses the focus of who has just pressed it.
            <button
                type="button"
                class="take"
                data-testid="undo"
                aria-disabled=move || (!undoes.get()).to_string()
                aria-keyshortcuts="Control+Z"
                title="Take the last change back (Ctrl+Z)"
                on:click=move |_| planner.undo()
            >
                "undo"
            </button>
            <button
                type="button"
                class="take"
                data-testid="redo"
                aria-disabled=move || (!redoes.get()).to_string()
                aria-keyshortcuts="Control+Shift+Z"
                title="Make it again (Ctrl+Shift+Z)"
                on:click=move |_| planner.redo()
            >
                "redo"
            </button>
            <button
                type="button"
                class="take"
                data-testid="as-opened"
                aria-disabled=move || trail.with(|trail| planner.scenario.with(|now| trail.first() == now)).to_string()
                title="Back to what the page was opened with; that can be undone too"
                on:click=move |_| planner.set(trail.with_untracked(|trail| trail.first().clone()))
            >
                "as opened"
            </button>
        </div>
    }
}

/// Ctrl+Z and Ctrl+Shift+Z anywhere but in a field, which has an undo of its own.
fn listen_for_keys(planner: Planner) {
    let pressed = Closure::<dyn FnMut(web_sys::KeyboardEvent)>::new(move |event: web_sys::KeyboardEvent| {
        let typing = event
            .target()
            .and_then(|target| target.dyn_into::<web_sys::Element>().ok())
            .is_some_and(|target| target.matches("input:not([type=range]), textarea, select").unwrap_or(false));
        if typing || !(event.ctrl_key() || event.meta_key()) || !event.key().eq_ignore_ascii_case("z") {
            return;
        }
        event.prevent_default();
        if event.shift_key() {
            planner.redo();
        } else {
            planner.undo();
        }
    });
    if let Some(window) = web_sys::window() {
        let _ = window.add_event_listener_with_callback("keydown", pressed.as_ref().unchecked_ref());
    }
    // It listens as long as the page lives.
    pressed.forget();
}
