//! In the planner: what was measured near the present scenario, and how far the estimate was off there.

use leptos::prelude::*;
use plimsoll_core::measurement::Metric;
use plimsoll_web::compare::nearest::nearest;
use plimsoll_web::compare::{Entry, Origin, metric_label, percent, recipe};
use plimsoll_web::number;

use super::logbook::Logbook;
use super::planner::Planner;
use super::route::Route;

/// How many neighbours are listed.
const LISTED: usize = 3;

#[component]
pub fn Measured() -> impl IntoView {
    let logbook = Logbook::get();
    let planner = Planner::get();
    let near = Memo::new(move |_| {
        let scenario = planner.below.scenario.get();
        logbook.entries.with(|entries| {
            nearest(entries, &scenario, LISTED).into_iter().map(|(entry, d)| (entry.clone(), d)).collect::<Vec<_>>()
        })
    });
    view! {
        <section class="section measured" aria-labelledby="measured-title" hidden=move || near.with(Vec::is_empty)>
            <header class="section-head">
                <h2 id="measured-title">"Measured near here"</h2>
                <p>"Real runs most like this one, each beside the estimate of exactly that run."</p>
            </header>
            <ul class="measured-list" data-testid="measured">
                {move || {
                    near.get()
                        .into_iter()
                        .map(|(entry, distance)| view! { <Neighbour entry same=distance < 1e-9/> })
                        .collect_view()
                }}
            </ul>
        </section>
    }
}

#[component]
fn Neighbour(entry: Entry, same: bool) -> impl IntoView {
    let route = Route::get();
    let id = entry.point.id.clone();
    let point = entry.point;
    // The outermost peak that both tell.
    let metric = [Metric::Process, Metric::Reserved, Metric::Allocated]
        .into_iter()
        .find(|metric| point.error(*metric).is_some());
    let figures = metric.and_then(|metric| {
        let (measured, estimated) = (point.measured.get(metric)?, point.estimated?.get(metric)?);
        let error = point.error(metric).map(percent).unwrap_or_default();
        Some((metric, number::bytes(measured), number::bytes(estimated), error))
    });
    let whose = if entry.origin == Origin::Here { "Your own run" } else { "Measured" };
    view! {
        <li>
            <p>
                {match figures {
                    Some((metric, measured, estimated, error)) => {
                        view! {
                            {whose} " on " {point.device.clone()} ": " <strong>{measured}</strong>
                            ", estimate " {estimated} " (" {error} "), " {metric_label(metric)} " memory"
                            {same.then_some(", this very run")}
                        }
                            .into_any()
                    }
                    None => {
                        view! { {whose} " on " {point.device.clone()} ", without an estimate beside it" }.into_any()
                    }
                }}
                <small>{point.model.clone()} ", " {recipe(&point)}</small>
            </p>
            <button
                type="button"
                class="take"
                on:click=move |_| {
                    route
                        .to_compare(|v| {
                            v.only.clear();
                            v.selected = Some(id.clone());
                        });
                }
            >
                "compare"
            </button>
        </li>
    }
}
