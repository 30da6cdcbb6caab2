//! The compare page: what was measured beside what is estimated.

mod detail;
mod drop;
mod filters;
mod groups;
mod list;
mod scatter;
mod spread;

use leptos::prelude::*;
use plimsoll_core::measurement::{Metric, Standing};
use plimsoll_web::compare::{Entry, metric_about, metric_label, percent, percent_size};

use super::logbook::{Gathering, Logbook};
use super::route::Route;

/// The entries that the filters leave.
fn shown() -> Vec<Entry> {
    let view = Route::get().view.get();
    Logbook::get().entries.with(|entries| view.shown(entries).into_iter().cloned().collect())
}

#[component]
pub fn ComparePage() -> impl IntoView {
    let logbook = Logbook::get();
    let none = move || logbook.entries.with(Vec::is_empty);
    view! {
        <main class="compare" id="compare" tabindex="-1">
            <header class="compare-head">
                <h2>"Measured against estimated"</h2>
                <Summary/>
            </header>
            <drop::Drop/>
            <Gathered/>
            <div class="compare-body" hidden=none>
                <div class="compare-controls">
                    <MetricChoice/>
                    <filters::Filters/>
                </div>
                <div class="compare-charts">
                    <scatter::ScatterSection/>
                    <spread::SpreadSection/>
                </div>
                <detail::Detail/>
                <groups::Groups/>
                <list::Records/>
            </div>
            <Empty/>
        </main>
    }
}

/// All of it in one sentence.
#[component]
fn Summary() -> impl IntoView {
    let route = Route::get();
    view! {
        <p class="compare-summary" role="status" data-testid="compare-summary">
            {move || {
                let metric = route.view.with(|v| v.metric);
                let entries = shown();
                if entries.is_empty() {
                    return String::new();
                }
                let errors: Vec<(f64, &str)> = entries
                    .iter()
                    .filter(|e| e.point.standing == Standing::Accepted)
                    .filter_map(|e| Some((e.point.error(metric)?, e.point.id.as_str())))
                    .collect();
                let cards: std::collections::BTreeSet<&str> = entries.iter().map(|e| e.point.device.as_str()).collect();
                let many = |n: usize, one: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") };
                let head = format!("{} on {}.", many(entries.len(), "measurement"), many(cards.len(), "device"));
                match plimsoll_core::measurement::Spread::of(errors.into_iter(), str::to_owned) {
                    Some(spread) => {
                        format!(
                            "{head} Of {} compared, the estimate of {} memory is off by {} in the median and by {} at worst.",
                            spread.n,
                            metric_label(metric),
                            percent_size(spread.median),
                            percent(spread.worst),
                        )
                    }
                    None => format!("{head} None of them can be compared by {} memory.", metric_label(metric)),
                }
            }}
        </p>
    }
}

/// Whether all has come.
#[component]
fn Gathered() -> impl IntoView {
    let logbook = Logbook::get();
    view! {
        <div class="compare-gathered" role="status">
            {move || match logbook.gathering.get() {
                Gathering::Under => Some(view! { <p>"Fetching measurements …"</p> }.into_any()),
                Gathering::Failed(problem) => {
                    Some(
                        view! {
                            <p class="compare-problem">
                                "Not all measurements could be had: " {problem} ". Those that are here are shown."
                            </p>
                        }
                            .into_any(),
                    )
                }
                Gathering::Done => {
                    let beyond = logbook.beyond.get();
                    (beyond > 0)
                        .then(|| {
                            view! { <p>"The newest are shown; the server has " {beyond} " more."</p> }.into_any()
                        })
                }
            }}
        </div>
    }
}

/// What to do where nothing has been measured.
#[component]
fn Empty() -> impl IntoView {
    let logbook = Logbook::get();
    let empty = move || logbook.entries.with(Vec::is_empty) && logbook.gathering.with(|g| *g != Gathering::Under);
    view! {
        <section class="compare-empty" hidden=move || !empty() data-testid="compare-empty">
            <h3>"No measurements here yet"</h3>
            <p>"Run one on your own card; it takes a minute, and nothing leaves your machine:"</p>
            <pre><code>"plimsoll probe run --model gpt2 --batch 8 --seq 512 --out record.json"</code></pre>
            <p>
                "Drop record.json on this page to see it beside its estimate, or send it to a server of yours with "
                <code>"plimsoll upload record.json"</code> "."
            </p>
        </section>
    }
}

/// Which peak is compared.
#[component]
fn MetricChoice() -> impl IntoView {
    let route = Route::get();
    let now = move || route.view.with(|v| v.metric);
    view! {
        <fieldset class="field segments" data-testid="metric">
            <legend>"Peak"</legend>
            <div class="strip">
                {Metric::ALL
                    .map(|metric| {
                        view! {
                            <label class="segment-choice">
                                <input
                                    type="radio"
                                    name="metric"
                                    value=metric.as_str()
                                    prop:checked=move || now() == metric
                                    on:change=move |_| route.look(|v| v.metric = metric)
                                />
                                <span>{metric_label(metric)}</span>
                            </label>
                        }
                    })
                    .collect_view()}
            </div>
            <p class="help">{move || metric_about(now())}</p>
        </fieldset>
    }
}
