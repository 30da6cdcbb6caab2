//! The head of the page.

use leptos::prelude::*;

use super::emblem::Emblem;
use super::handoff::Handoff;
use super::planner::Planner;
use super::route::Route;
use super::theme::ThemeToggle;

#[component]
pub fn Masthead() -> impl IntoView {
    let route = Route::get();
    let planner = Planner::get();
    let current = move |here: bool| here.then_some("page");
    view! {
        <header class="masthead">
            <div class="brand">
                <Emblem/>
                <h1>"Plimsoll"</h1>
                <p class="tagline">"How deep a training run will sit in GPU memory"</p>
            </div>
            <nav class="pages" aria-label="Pages">
                <a
                    href="#"
                    data-testid="to-planner"
                    aria-current=move || current(!route.compares.get())
                    on:click=move |event| {
                        event.prevent_default();
                        route.to_planner(planner);
                    }
                >
                    "Planner"
                </a>
                <a
                    href="#/compare"
                    data-testid="to-compare"
                    aria-current=move || current(route.compares.get())
                    on:click=move |event| {
                        event.prevent_default();
                        route.to_compare(|_| ());
                    }
                >
                    "Compare"
                </a>
            </nav>
            <div class="tools" class:tools-compare=move || route.compares.get()>
                <Handoff/>
                <ThemeToggle/>
            </div>
        </header>
    }
}
