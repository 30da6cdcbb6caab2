//! The first thing one sees: the verdict in numbers, and the mark.

use leptos::prelude::*;

use super::gauge::GaugeFigure;
use super::planner::Planner;
use super::verdict::VerdictPanel;

#[component]
pub fn Hero() -> impl IntoView {
    let planner = Planner::get();
    view! {
        <section
            class="hero"
            aria-label="Verdict"
            class:is-pending=move || planner.pending.get()
            class:is-stale=move || planner.fault.with(Option::is_some)
            class:is-deep=move || planner.reading.with(|r| r.as_ref().is_some_and(|r| r.standing.below()))
        >
            <VerdictPanel/>
            <GaugeFigure/>
        </section>
    }
}
