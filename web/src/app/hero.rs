//! The first thing one sees: the verdict in numbers, and the mark.

use leptos::prelude::*;
use plimsoll_web::number;

use super::gauge::GaugeFigure;
use super::planner::Planner;
use super::verdict::VerdictPanel;

/// The verdict in one line; on narrow screens it stays in sight while the controls are worked.
#[component]
pub fn Strip() -> impl IntoView {
    let planner = Planner::get();
    move || {
        planner.reading.get().map(|reading| {
            view! {
                <div class="strip-verdict" class:is-below=reading.standing.below() aria-hidden="true">
                    <strong>{reading.standing.label()}</strong>
                    <span>{number::bytes(reading.process)}</span>
                    <span>{number::signed(reading.headroom)}</span>
                </div>
            }
        })
    }
}

#[component]
pub fn Hero() -> impl IntoView {
    let planner = Planner::get();
    view! {
        <section
            class="hero"
            aria-label="Verdict"
            class:is-pending=move || planner.pending.get()
            class:is-stale=move || planner.fault.with(Option::is_some) || planner.amiss.with(|amiss| !amiss.is_empty())
            class:is-deep=move || planner.reading.with(|r| r.as_ref().is_some_and(|r| r.standing.below()))
        >
            <VerdictPanel/>
            <GaugeFigure/>
        </section>
    }
}
