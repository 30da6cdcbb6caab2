//! Whether every control says what it is. Off, the controls that decide are in sight together.

use leptos::prelude::*;

use super::browser;

/// Where the choice is kept.
const KEY: &str = "plimsoll-explain";

/// Whether controls explain themselves; remembered in this browser.
#[derive(Clone, Copy)]
pub struct Explain(RwSignal<bool>);

impl Explain {
    /// As it was left.
    pub fn open() -> Self {
        Self(RwSignal::new(browser::kept(KEY).as_deref() == Some("on")))
    }

    /// Whether they do.
    pub fn is_on(self) -> bool {
        self.0.get()
    }
}

#[component]
pub fn ExplainToggle() -> impl IntoView {
    let Explain(on) = expect_context();
    let toggle = move |_| {
        let next = !on.get_untracked();
        on.set(next);
        browser::keep(KEY, if next { "on" } else { "off" });
    };
    view! {
        <button
            class="take explain"
            type="button"
            data-testid="explain"
            aria-pressed=move || on.get().to_string()
            on:click=toggle
        >
            "Explain each"
        </button>
    }
}
