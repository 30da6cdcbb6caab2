//! One measurement: its figures, its phases over the predicted ones, and the way into the planner.

use leptos::html::Div;
use leptos::prelude::*;
use plimsoll_core::estimate::Run;
use plimsoll_core::measurement::{Metric, Standing};
use plimsoll_core::{Estimate, Measurement};
use plimsoll_web::compare::lay::{Lay, Row, rows};
use plimsoll_web::compare::ranks::{RankRow, rank_rows};
use plimsoll_web::compare::view::why_alone;
use plimsoll_web::compare::{Entry, metric_label, percent, recipe};
use plimsoll_web::number;

use crate::app::browser;
use crate::app::logbook::Logbook;
use crate::app::planner::Planner;
use crate::app::route::Route;

/// Height of the phases' drawing in px.
const HEIGHT: f64 = 300.0;

#[component]
pub fn Detail() -> impl IntoView {
    let logbook = Logbook::get();
    let route = Route::get();
    let selected = Memo::new(move |_| {
        let id = route.view.with(|v| v.selected.clone())?;
        logbook.entries.with(|entries| entries.iter().find(|e| e.point.id == id).cloned())
    });
    Effect::new(move || {
        if let Some(entry) = selected.get() {
            logbook.want(entry.point.id);
        }
    });
    let gone = move || route.view.with(|v| v.selected.is_some()) && selected.with(Option::is_none);
    view! {
        <section class="section detail" aria-labelledby="detail-title" data-testid="detail" hidden=move || {
            route.view.with(|v| v.selected.is_none())
        }>
            <header class="section-head">
                <h3 id="detail-title">
                    {move || selected.with(|e| e.as_ref().map_or("Not here".to_owned(), |e| e.point.model.clone()))}
                </h3>
                <p>{move || selected.with(|e| e.as_ref().map(|e| recipe(&e.point)))}</p>
                <button
                    type="button"
                    class="tool"
                    on:click=move |_| route.look(|v| v.selected = None)
                >
                    "Close"
                </button>
            </header>
            <p hidden=move || !gone()>"The link names a measurement that is not among those of this page."</p>
            {move || selected.get().map(|entry| view! { <Facts entry/> })}
            <Phases selected/>
        </section>
    }
}

/// Figures and provenance.
#[component]
fn Facts(entry: Entry) -> impl IntoView {
    let point = entry.point.clone();
    let out = point.standing == Standing::Quarantined;
    let reasons = point.reasons.clone();
    view! {
        <div class="detail-facts">
            <p>
                {format!(
                    "{}, torch {}, taken {}, {}.",
                    point.device,
                    point.torch,
                    point.taken,
                    entry.origin.label(),
                )}
            </p>
            {out
                .then(|| {
                    view! {
                        <div class="refusal">
                            <p>"In quarantine: shown, and kept out of the figures."</p>
                            {reasons.into_iter().map(|r| view! { <p>{r}</p> }).collect_view()}
                        </div>
                    }
                })}
            <table class="figures-table">
                <caption class="unseen">"Measured and estimated peaks"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Peak"</th>
                        <th scope="col" class="num">"Measured"</th>
                        <th scope="col" class="num">"Estimated"</th>
                        <th scope="col" class="num">"Off by"</th>
                    </tr>
                </thead>
                <tbody>
                    {Metric::ALL
                        .map(|metric| {
                            let size = |bytes: Option<_>| bytes.map_or("–".to_owned(), number::bytes);
                            let error = point.error(metric);
                            let estimated = point.estimated.and_then(|e| e.get(metric)).filter(|_| error.is_some());
                            view! {
                                <tr>
                                    <th scope="row">
                                        {metric_label(metric)}
                                        {error.is_none().then(|| view! { <small>{why_alone(&point, metric)}</small> })}
                                    </th>
                                    <td class="num">{size(point.measured.get(metric))}</td>
                                    <td class="num">{size(estimated)}</td>
                                    <td class="num">{error.map_or("–".to_owned(), percent)}</td>
                                </tr>
                            }
                        })
                        .collect_view()}
                </tbody>
            </table>
        </div>
    }
}

/// What the whole record tells.
#[component]
fn Phases(selected: Memo<Option<Entry>>) -> impl IntoView {
    let logbook = Logbook::get();
    let route = Route::get();
    let planner = Planner::get();
    let frame = NodeRef::<Div>::new();
    let width = RwSignal::new(browser::window_width().min(900.0));
    Effect::new(move || {
        if let Some(frame) = frame.get() {
            browser::watch_width(&frame, move |w| width.set(w.round().max(240.0)));
        }
    });
    let record = Memo::new(move |_| selected.with(|e| logbook.record(&e.as_ref()?.point.id)));
    let estimate = Memo::new(move |_| {
        record.with(|record| match record {
            Some(Ok(record)) => predicted(record),
            _ => None,
        })
    });
    let metric = move || match route.view.with(|v| v.metric) {
        // Of the process's memory only the peak of the whole run is known.
        Metric::Process => Metric::Reserved,
        metric => metric,
    };
    let found = Memo::new(move |_| {
        record.with(|record| match record {
            Some(Ok(record)) => estimate.with(|estimate| rows(record, estimate.as_ref(), metric())),
            _ => Vec::new(),
        })
    });
    let ranks = Memo::new(move |_| {
        record.with(|record| match record {
            Some(Ok(record)) => estimate.with(|estimate| rank_rows(record, estimate.as_ref())),
            _ => Vec::new(),
        })
    });
    let open = move |_| {
        let scenario = record.with_untracked(|r| match r {
            Some(Ok(record)) => record.as_run().ok(),
            _ => None,
        });
        if let Some(scenario) = scenario {
            planner.set(scenario);
            route.to_planner(planner);
        }
    };
    view! {
        <div class="detail-phases">
            <p role="status">
                {move || {
                    record.with(|record| match record {
                        Some(Err(problem)) => format!("The whole record cannot be had: {problem}."),
                        None if selected.with(Option::is_some) => "Fetching the whole record …".to_owned(),
                        _ => String::new(),
                    })
                }}
            </p>
            <button
                type="button"
                class="tool tool-main"
                data-testid="open-in-planner"
                hidden=move || !record.with(|r| matches!(r, Some(Ok(_))))
                on:click=open
            >
                "Open in the planner"
            </button>
            <div class="plot lay" node_ref=frame data-testid="phases-overlaid" hidden=move || found.with(Vec::is_empty)>
                {move || {
                    let rows = found.get();
                    (!rows.is_empty()).then(|| view! { <Drawing lay=Lay::new(&rows, width.get(), HEIGHT)/> })
                }}
            </div>
            <p class="help" hidden=move || found.with(Vec::is_empty)>
                {move || format!("Peaks of each part of the loop, {} memory. Columns: predicted. Line: measured.", metric_label(metric()))}
            </p>
            <PhaseTable found/>
            <RankTable ranks/>
        </div>
    }
}

fn predicted(record: &Measurement) -> Option<Estimate> {
    Some(Run::new(&record.as_run().ok()?).ok()?.into_estimate())
}

#[component]
fn PhaseTable(found: Memo<Vec<Row>>) -> impl IntoView {
    view! {
        <details class="more" hidden=move || found.with(Vec::is_empty)>
            <summary>"Phases as a table"</summary>
            <table class="figures-table">
                <caption class="unseen">"Measured and predicted peaks by phase, in GiB"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Phase"</th>
                        <th scope="col">"Step"</th>
                        <th scope="col" class="num">"Measured"</th>
                        <th scope="col" class="num">"Predicted"</th>
                        <th scope="col" class="num">"Off by"</th>
                    </tr>
                </thead>
                <tbody>
                    {move || {
                        found
                            .get()
                            .into_iter()
                            .map(|row| {
                                view! {
                                    <tr>
                                        <th scope="row">{row.label()}</th>
                                        <td>{row.step()}</td>
                                        <td class="num">{number::gib(row.measured)}</td>
                                        <td class="num">{row.predicted.map_or("–".to_owned(), number::gib)}</td>
                                        <td class="num">{row.error().map_or("–".to_owned(), percent)}</td>
                                    </tr>
                                }
                            })
                            .collect_view()
                    }}
                </tbody>
            </table>
        </details>
    }
}

/// Of several cards each rank, beside its role's estimate.
#[component]
fn RankTable(ranks: Memo<Vec<RankRow>>) -> impl IntoView {
    view! {
        <details class="more" data-testid="ranks" hidden=move || ranks.with(Vec::is_empty)>
            <summary>"Rank by rank"</summary>
            <p class="help">"The figures above are those of the highest rank. In brackets: by how much the estimate of the rank is off."</p>
            <table class="figures-table">
                <caption class="unseen">"Measured peaks of each rank"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Rank"</th>
                        {Metric::ALL.map(|metric| view! { <th scope="col" class="num">{metric_label(metric)}</th> })}
                        <th scope="col">"Exchanged in a step"</th>
                    </tr>
                </thead>
                <tbody>
                    {move || {
                        ranks
                            .get()
                            .into_iter()
                            .map(|row| {
                                view! {
                                    <tr>
                                        <th scope="row">{row.name} {row.note.map(|note| view! { <small>{note}</small> })}</th>
                                        {row
                                            .figures
                                            .map(|(size, off)| {
                                                let size = size.map_or("–".to_owned(), number::bytes);
                                                let off = off.map(|off| format!(" ({})", percent(off)));
                                                view! { <td class="num">{size} {off}</td> }
                                            })}
                                        <td>{row.exchanged}</td>
                                    </tr>
                                }
                            })
                            .collect_view()
                    }}
                </tbody>
            </table>
        </details>
    }
}

#[component]
fn Drawing(lay: Lay) -> impl IntoView {
    let [left, right] = lay.edges;
    let (width, height, foot) = (lay.width, lay.height, lay.foot);
    let brace = foot + if lay.upright { 73.0 } else { 23.0 };
    view! {
        <svg width=width height=height viewBox=format!("0 0 {width} {height}") aria-hidden="true">
            {lay
                .ticks
                .iter()
                .map(|t| {
                    view! {
                        <line class="graticule" x1=left x2=right y1=t.y y2=t.y/>
                        <text class="draught figure-end" x=left - 7.0 y=t.y + 4.0>{t.text.clone()}</text>
                    }
                })
                .collect_view()}
            {lay
                .columns
                .iter()
                .map(|column| {
                    let middle = column.x + column.width / 2.0;
                    view! {
                        {column
                            .predicted
                            .map(|y| {
                                view! {
                                    <rect class="predicted" x=column.x y=y width=column.width height=(foot - y).max(0.0)/>
                                }
                            })}
                        {if lay.upright {
                            let turn = format!("translate({} {}) rotate(-90)", middle + 4.0, foot + 8.0);
                            view! { <text class="draught figure-end" transform=turn>{column.label.clone()}</text> }
                                .into_any()
                        } else {
                            view! { <text class="phase-name" x=middle y=foot + 17.0>{column.label.clone()}</text> }
                                .into_any()
                        }}
                    }
                })
                .collect_view()}
            <path class="measured-line" d=lay.line.clone()/>
            {lay
                .steps
                .iter()
                .map(|(from, to, name)| {
                    view! {
                        <path
                            class="step-brace"
                            d=format!("M{} {y}v5H{}v-5", from + 2.0, to - 2.0, y = brace)
                        />
                        <text class="step-name" x=f64::midpoint(*from, *to) y=brace + 20.0>{*name}</text>
                    }
                })
                .collect_view()}
        </svg>
    }
}
