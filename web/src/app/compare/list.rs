//! Every measurement that is shown, one a row.

use leptos::prelude::*;
use plimsoll_core::measurement::Standing;
use plimsoll_web::compare::view::why_alone;
use plimsoll_web::compare::{Entry, metric_label, percent, recipe};
use plimsoll_web::number;

use super::shown;
use crate::app::route::Route;

/// Rows at first; more on request.
const ROWS: usize = 50;

#[component]
pub fn Records() -> impl IntoView {
    let route = Route::get();
    let most = RwSignal::new(ROWS);
    let entries = Memo::new(move |_| shown());
    view! {
        <section class="section" aria-labelledby="records-title">
            <header class="section-head">
                <h3 id="records-title">"Every run"</h3>
                <p>{move || format!("By {} memory, in GiB.", metric_label(route.view.with(|v| v.metric)))}</p>
            </header>
            <div class="scrolls" tabindex="0" role="region" aria-labelledby="records-title">
                <table class="figures-table records" data-testid="records">
                    <caption class="unseen">"Measurements beside their estimates"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Run"</th>
                            <th scope="col">"Device"</th>
                            <th scope="col" class="num">"Measured"</th>
                            <th scope="col" class="num">"Estimated"</th>
                            <th scope="col" class="num">"Off by"</th>
                            <th scope="col"><span class="unseen">"Look"</span></th>
                        </tr>
                    </thead>
                    <tbody>
                        {move || {
                            entries.with(|entries| {
                                entries.iter().take(most.get()).map(|e| view! { <Row entry=e.clone()/> }).collect_view()
                            })
                        }}
                    </tbody>
                </table>
            </div>
            <button
                type="button"
                class="tool"
                hidden=move || entries.with(Vec::len) <= most.get()
                on:click=move |_| most.update(|n| *n += 4 * ROWS)
            >
                {move || format!("Show more of {}", entries.with(Vec::len))}
            </button>
        </section>
    }
}

#[component]
fn Row(entry: Entry) -> impl IntoView {
    let route = Route::get();
    let metric = route.view.with_untracked(|v| v.metric);
    let point = entry.point;
    let id = point.id.clone();
    let chosen = {
        let id = id.clone();
        move || route.view.with(|v| v.selected.as_deref() == Some(id.as_str()))
    };
    let size = |bytes: Option<_>| bytes.map_or("–".to_owned(), number::gib);
    let estimated = point.estimated.filter(|_| point.error(metric).is_some()).and_then(|e| e.get(metric));
    let why = why_alone(&point, metric);
    let notes: Vec<String> = point.reasons.iter().cloned().chain((!why.is_empty()).then(|| why.to_owned())).collect();
    let out = point.standing == Standing::Quarantined;
    view! {
        <tr class:is-chosen=chosen class:is-out=out>
            <th scope="row">
                <span>
                    {point.model.clone()}
                    <small>{recipe(&point)}</small>
                    {out.then(|| view! { <small class="out-note">"in quarantine"</small> })}
                    {notes.into_iter().map(|note| view! { <small>{note}</small> }).collect_view()}
                </span>
            </th>
            <td>{point.device.clone()} <small>{format!("torch {}, {}", point.torch, point.taken)}</small></td>
            <td class="num">{size(point.measured.get(metric))}</td>
            <td class="num">{size(estimated)}</td>
            <td class="num">{point.error(metric).map_or("–".to_owned(), percent)}</td>
            <td class="act">
                <button
                    type="button"
                    class="take"
                    aria-label=format!("Look at {} on {}", point.model, point.device)
                    on:click=move |_| route.look(|v| v.selected = Some(id.clone()))
                >
                    "look"
                </button>
            </td>
        </tr>
    }
}
