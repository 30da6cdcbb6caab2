//! The page.

mod address;
mod alive;
mod answer;
mod breakdown;
mod browser;
mod compare;
mod controls;
mod course;
mod emblem;
mod exchange;
mod explain;
mod fitting;
mod footer;
mod gauge;
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
    if let Some(shell) = browser::element("shell") {
        shell.remove();
    }
    mount_to_body(App);
    browser::mark_ready();
}

#[component]
fn App() -> impl IntoView {
    let logbook = Logbook::open();
    provide_context(logbook);
    let route = Route::open();
    provide_context(route);
    address::carry(logbook);
    let planner = Planner::open();
    provide_context(planner);
    provide_context(explain::Explain::open());
    provide_context(plans::PlanBook::open(planner));
    provide_context(exchange::Given::default());
    provide_context(snapshot::Snapped::default());
    route.follow();
    // Opened once it stays: its drawings watch their width as long as the page lives.
    let opened = Memo::new(move |before: Option<&bool>| before.copied().unwrap_or(false) || route.compares.get());
    view! {
        <a class="skip" href="#verdict" hidden=move || route.compares.get()>"Skip to the verdict"</a>
        <patterns::Patterns/>
        <masthead::Masthead/>
        <notices::Notices/>
        <main class="sheet" hidden=move || route.compares.get()>
            <hero::Hero/>
            <hero::Strip/>
            <controls::Controls/>
            <div class="below">
                <fitting::MakeItFit/>
                <measured::Measured/>
                <timeline::TimelineSection/>
                <snapshot::SnapshotSection/>
                <breakdown::BreakdownSection/>
                <heatmap::HeatMapSection/>
                <whatif::WhatIf/>
                <plans::SideBySide/>
                <exchange::Exchange/>
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
