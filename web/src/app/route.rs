//! Which of the two pages is shown: the planner, or measurements compared. The place behind `#` says it, so that every
//! file host can serve both.

use leptos::prelude::*;
use plimsoll_web::compare::view::View;
use wasm_bindgen::prelude::*;

use super::address;
use super::planner::Planner;

/// The page's place.
#[derive(Clone, Copy)]
pub struct Route {
    /// Whether the compare page is shown.
    pub compares: RwSignal<bool>,
    /// What it shows.
    pub view: RwSignal<View>,
}

impl Route {
    /// The place in the address bar.
    pub fn open() -> Self {
        let hash = hash();
        Self { compares: RwSignal::new(View::is_at(&hash)), view: RwSignal::new(View::parse(&hash)) }
    }

    /// The route of this page.
    pub fn get() -> Self {
        expect_context()
    }

    /// Follows the address when a person edits it or goes back.
    pub fn follow(self) {
        let changed = Closure::<dyn FnMut()>::new(move || {
            let hash = hash();
            let compares = View::is_at(&hash);
            if compares && self.view.with_untracked(|v| v.fragment()) != hash.trim_start_matches('#') {
                self.view.set(View::parse(&hash));
            }
            if self.compares.get_untracked() != compares {
                self.compares.set(compares);
            }
        });
        if let Some(window) = web_sys::window() {
            for event in ["popstate", "hashchange"] {
                let _ = window.add_event_listener_with_callback(event, changed.as_ref().unchecked_ref());
            }
        }
        changed.forget();
    }

    /// Changes what the compare page shows.
    pub fn look(self, edit: impl FnOnce(&mut View)) {
        self.view.update(edit);
        replace(&format!("#{}", self.view.with_untracked(View::fragment)));
    }

    /// Goes to the compare page.
    pub fn to_compare(self, edit: impl FnOnce(&mut View)) {
        self.view.update(edit);
        push(&format!("#{}", self.view.with_untracked(View::fragment)));
        self.compares.set(true);
        to_top();
    }

    /// Goes to the planner.
    pub fn to_planner(self, planner: Planner) {
        push(&planner.scenario.with_untracked(address::link));
        self.compares.set(false);
        to_top();
    }
}

/// What stands behind `#` in the address bar, `#` included.
pub fn hash() -> String {
    web_sys::window().and_then(|w| w.location().hash().ok()).unwrap_or_default()
}

/// Goes on to a new place in the browser's history.
pub fn push(link: &str) {
    if let Some(Ok(history)) = web_sys::window().map(|w| w.history()) {
        let _ = history.push_state_with_url(&JsValue::NULL, "", Some(link));
    }
}

/// Writes the present place anew.
pub fn replace(link: &str) {
    if let Some(Ok(history)) = web_sys::window().map(|w| w.history()) {
        // Refused only when rewritten too often.
        let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(link));
    }
}

fn to_top() {
    if let Some(window) = web_sys::window() {
        window.scroll_to_with_x_and_y(0.0, 0.0);
    }
}
