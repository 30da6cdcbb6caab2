//! Errors by group.

use leptos::prelude::*;
use plimsoll_core::measurement::{Facet, MeasurementPoint, Metric, Spread, groups};
use plimsoll_web::compare::{percent, percent_size};

use super::shown;
use crate::app::route::Route;

#[component]
pub fn Groups() -> impl IntoView {
    let route = Route::get();
    let by = move || route.view.with(|v| v.by);
    view! {
        <section class="section" aria-labelledby="groups-title">
            <header class="section-head">
                <h3 id="groups-title">"In groups"</h3>
                <div class="filter">
                    <label for="group-by">"By"</label>
                    <select
                        id="group-by"
                        data-testid="group-by"
                        on:change:target=move |event| {
                            if let Some(by) = Facet::group(&event.target().value()) {
                                route.look(|v| v.by = by);
                            }
                        }
                    >
                        {Facet::GROUPS
                            .map(|choice| {
                                view! {
                                    <option value=choice.as_str() selected=move || by() == choice>
                                        {choice.in_words().label}
                                    </option>
                                }
                            })
                            .collect_view()}
                    </select>
                </div>
            </header>
            <div class="scrolls" tabindex="0" role="region" aria-labelledby="groups-title">
                <table class="figures-table groups" data-testid="groups">
                    <caption class="unseen">"Median and worst error by group"</caption>
                    <thead>
                        <tr>
                            <th scope="col">{move || by().in_words().label}</th>
                            <th scope="col" class="num">"Runs"</th>
                            {Metric::ALL
                                .map(|metric| {
                                    view! {
                                        <th scope="col" class="num">{metric.as_str()} ", median"</th>
                                        <th scope="col" class="num">"worst"</th>
                                    }
                                })
                                .collect_view()}
                        </tr>
                    </thead>
                    <tbody>
                        {move || {
                            let points: Vec<MeasurementPoint> = shown().into_iter().map(|e| e.point).collect();
                            groups(&points, by())
                                .into_iter()
                                .map(|group| {
                                    view! {
                                        <tr>
                                            <th scope="row">{group.key}</th>
                                            <td class="num">{group.n}</td>
                                            <Figures spread=group.allocated/>
                                            <Figures spread=group.reserved/>
                                            <Figures spread=group.process/>
                                        </tr>
                                    }
                                })
                                .collect_view()
                        }}
                    </tbody>
                </table>
            </div>
        </section>
    }
}

/// Median and worst of one peak; the worst leads to its record.
#[component]
fn Figures(spread: Option<Spread>) -> impl IntoView {
    let route = Route::get();
    match spread {
        None => view! {
            <td class="num">"–"</td>
            <td class="num">"–"</td>
        }
        .into_any(),
        Some(spread) => {
            let id = spread.worst_id;
            view! {
                <td class="num">{percent_size(spread.median)}</td>
                <td class="num">
                    <button
                        type="button"
                        class="take"
                        on:click=move |_| route.look(|v| v.selected = Some(id.clone()))
                    >
                        {percent(spread.worst)}
                    </button>
                </td>
            }
            .into_any()
        }
    }
}
