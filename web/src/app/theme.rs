//! Light and dark: the system's choice until a person makes another, which is remembered.

use leptos::prelude::*;
use wasm_bindgen::prelude::*;

use super::browser;

/// Where the choice is kept; `before.js` reads it before the first paint.
const KEY: &str = "plimsoll-theme";

#[component]
pub fn ThemeToggle() -> impl IntoView {
    let dark = RwSignal::new(is_dark());
    let toggle = move |_| {
        let next = !dark.get();
        dark.set(next);
        let name = if next { "dark" } else { "light" };
        if let Some(root) = browser::document().and_then(|d| d.document_element()) {
            let _ = root.set_attribute("data-theme", name);
        }
        // Storage may be forbidden; the choice then lasts as long as the page.
        browser::keep(KEY, name);
    };
    follow_system(dark);
    view! {
        <button
            class="tool tool-theme"
            type="button"
            data-testid="theme-toggle"
            aria-pressed=move || dark.get().to_string()
            aria-label="Dark theme"
            title="Dark theme"
            on:click=toggle
        >
            <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
                <circle class="theme-ring" cx="10" cy="10" r="7.25"/>
                <path class="theme-half" d="M10 2.75a7.25 7.25 0 0 1 0 14.5z"/>
            </svg>
        </button>
    }
}

fn is_dark() -> bool {
    let chosen = browser::document().and_then(|d| d.document_element()).and_then(|e| e.get_attribute("data-theme"));
    match chosen.as_deref() {
        Some("dark") => true,
        Some("light") => false,
        _ => system().is_some_and(|m| m.matches()),
    }
}

fn system() -> Option<web_sys::MediaQueryList> {
    web_sys::window()?.match_media("(prefers-color-scheme: dark)").ok().flatten()
}

/// Follows the system while nobody has chosen.
fn follow_system(dark: RwSignal<bool>) {
    let changed = Closure::<dyn FnMut()>::new(move || dark.set(is_dark()));
    if let Some(query) = system() {
        let _ = query.add_event_listener_with_callback("change", changed.as_ref().unchecked_ref());
    }
    changed.forget();
}
