//! The first thing one sees: the verdict in numbers, and the mark.

use leptos::prelude::*;
use plimsoll_web::number;
use plimsoll_web::reading::Reading;

use super::gauge::GaugeFigure;
use super::planner::Planner;
use super::verdict::VerdictPanel;

/// The verdict in one line; on narrow screens it stays in sight while the controls are worked.
#[component]
pub fn Strip() -> impl IntoView {
    let planner = Planner::get();
    let reading = planner.reading;
    let is_there = Memo::new(move |_| reading.with(Option::is_some));
    let shown = move |say: fn(&Reading) -> String| move || reading.with(|r| r.as_ref().map(|r| say(r)));
    move || {
        is_there.get().then(|| {
            view! {
                <div
                    class="strip-verdict"
                    class:is-below=move || reading.with(|r| r.as_ref().is_some_and(|r| r.standing.below()))
                    aria-hidden="true"
                >
                    <strong>{shown(|r| r.standing.label().to_owned())}</strong>
                    <span>{shown(|r| number::bytes(r.process))}</span>
                    <span>{shown(|r| number::signed(r.headroom))}</span>
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
