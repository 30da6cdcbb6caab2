//! The head of the page.

use leptos::prelude::*;

use super::emblem::Emblem;
use super::handoff::Handoff;
use super::theme::ThemeToggle;

#[component]
pub fn Masthead() -> impl IntoView {
    view! {
        <header class="masthead">
            <div class="brand">
                <Emblem/>
                <h1>"Plimsoll"</h1>
                <p class="tagline">"How deep a training run will sit in GPU memory"</p>
            </div>
            <div class="tools">
                <Handoff/>
                <ThemeToggle/>
            </div>
        </header>
    }
}
