//! The page.

mod address;
mod alive;
mod breakdown;
mod browser;
mod controls;
mod desk;
mod emblem;
mod footer;
mod gauge;
mod handoff;
mod heatmap;
mod hero;
mod holdings;
mod ladder;
mod masthead;
mod notices;
mod patterns;
mod phases;
mod planner;
mod theme;
mod timeline;
mod verdict;
mod whatif;
mod widgets;
mod worker;

use leptos::prelude::*;

use planner::Planner;

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
    let planner = Planner::open();
    provide_context(planner);
    view! {
        <a class="skip" href="#verdict">"Skip to the verdict"</a>
        <patterns::Patterns/>
        <masthead::Masthead/>
        <notices::Notices/>
        <main class="sheet">
            <hero::Hero/>
            <hero::Strip/>
            <controls::Controls/>
            <div class="below">
                <timeline::TimelineSection/>
                <breakdown::BreakdownSection/>
                <heatmap::HeatMapSection/>
                <whatif::WhatIf/>
            </div>
        </main>
        <footer::Footer/>
    }
}
