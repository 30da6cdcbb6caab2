//! The page.

mod address;
mod ahead;
mod alive;
mod answer;
mod below;
mod bench;
mod breakdown;
mod browser;
mod compare;
mod controls;
mod course;
mod emblem;
mod exchange;
mod explain;
mod fitting;
mod fleet;
mod footer;
mod gauge;
mod glossary;
mod handoff;
mod heatmap;
mod hero;
mod holdings;
mod host;
mod hulls;
mod ladder;
mod logbook;
mod masthead;
mod measured;
mod notices;
mod patterns;
mod phases;
mod planner;
mod planning;
mod plans;
mod route;
mod scheduler;
mod snapshot;
mod theme;
mod timeline;
mod verdict;
mod whatif;
mod widgets;
mod worker;

use leptos::prelude::*;
use plimsoll_core::scenario::Decoded;

use logbook::Logbook;
use planner::Planner;
use route::Route;

/// Starts the page, or the worker where there is no page.
pub fn start() {
    browser::report_panics();
    if web_sys::window().is_none() {
        worker::serve();
        return;
    }
    let asked = address::read();
    if ahead::show(&asked.scenario) {
        browser::after_paint(Box::new(move || mount(asked)));
    } else {
        mount(asked);
    }
}

/// Puts the planner in the place of what was there before it.
fn mount(asked: Decoded) {
    if let Some(shell) = browser::element("shell") {
        shell.remove();
    }
    // What a first look is for is painted before the rest is made: most of the time until then is the browser compiling code.
    let painted = ArcRwSignal::new(Painted::default());
    let first = painted.clone();
    mount_to_body(move || view! { <App painted=first asked/> });
    browser::after_paint(Box::new(move || {
        painted.set(Painted::Verdict);
        browser::after_paint(Box::new(move || {
            painted.set(Painted::Fields);
            scheduler::start();
            browser::mark_ready();
        }));
    }));
}

/// How far the page has been painted; what comes next is made then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Painted {
    /// Not at all.
    #[default]
    Nothing,
    /// The verdict, with the fields of model and card.
    Verdict,
    /// All fields.
    Fields,
}

#[component]
fn App(
    /// How far.
    painted: ArcRwSignal<Painted>,
    /// What the address asks.
    asked: Decoded,
) -> impl IntoView {
    let logbook = Logbook::open();
    provide_context(logbook);
    let route = Route::open();
    provide_context(route);
    address::carry(logbook);
    let planner = Planner::open(asked);
    provide_context(planner);
    provide_context(explain::Explain::open());
    provide_context(glossary::Glossary::new());
    provide_context(plans::PlanBook::open(planner));
    provide_context(exchange::Given::default());
    provide_context(snapshot::Snapped::default());
    route.follow();
    // Opened once it stays: its drawings watch their width as long as the page lives.
    let seen = painted.clone();
    let opened = Memo::new(move |before: Option<&bool>| before.copied().unwrap_or(false) || route.compares.get());
    view! {
        <a class="skip" href="#verdict" hidden=move || route.compares.get()>"Skip to the verdict"</a>
        <patterns::Patterns/>
        <masthead::Masthead/>
        <notices::Notices/>
        <main class="sheet" hidden=move || route.compares.get()>
            <hero::Hero/>
            <hero::Strip/>
            <controls::Controls painted=seen/>
            <div class="below">
                <Show when={move || painted.get() >= Painted::Fields}>
                    <fitting::MakeItFit/>
                    <measured::Measured/>
                    <timeline::TimelineSection/>
                    <snapshot::SnapshotSection/>
                    <breakdown::BreakdownSection/>
                    <heatmap::HeatMapSection/>
                    <whatif::WhatIf/>
                    <plans::SideBySide/>
                    <exchange::Exchange/>
                    <glossary::Words/>
                </Show>
            </div>
        </main>
        <div hidden=move || !route.compares.get()>
            <Show when=move || opened.get()>
                <compare::ComparePage/>
            </Show>
        </div>
        <footer::Footer/>
    }
}
