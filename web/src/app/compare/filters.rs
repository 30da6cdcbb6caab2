//! Choosing which measurements are shown.

use leptos::prelude::*;
use plimsoll_core::measurement::Facet;
use plimsoll_web::compare::view::FILTERS;

use crate::app::logbook::Logbook;
use crate::app::route::Route;

#[component]
pub fn Filters() -> impl IntoView {
    let route = Route::get();
    view! {
        <div class="filters">
            {FILTERS.map(|by| view! { <Filter by/> }).collect_view()}
            <button
                type="button"
                class="tool"
                data-testid="filters-clear"
                disabled=move || route.view.with(|v| v.only.is_empty())
                on:click=move |_| route.look(|v| v.only.clear())
            >
                "All"
            </button>
        </div>
    }
}

#[component]
fn Filter(by: Facet) -> impl IntoView {
    let route = Route::get();
    let logbook = Logbook::get();
    let choices = Memo::new(move |_| {
        let view = route.view.get();
        logbook.entries.with(|entries| view.choices(entries, by))
    });
    let now = move || route.view.with(|v| v.only(by).unwrap_or_default().to_owned());
    let id = format!("filter-{}", by.as_str());
    view! {
        <div class="filter">
            <label for=id.clone()>{by.in_words().label}</label>
            <select
                id=id.clone()
                data-testid=id
                on:change:target=move |event| {
                    let value = event.target().value();
                    route.look(|v| v.set(by, (!value.is_empty()).then_some(value)));
                }
            >
                <option value="" selected=move || now().is_empty()>"any"</option>
                {move || {
                    choices
                        .get()
                        .into_iter()
                        .map(|(value, count)| {
                            let chosen = {
                                let value = value.clone();
                                move || now() == value
                            };
                            view! {
                                <option value=value.clone() selected=chosen>{format!("{value} ({count})")}</option>
                            }
                        })
                        .collect_view()
                }}
            </select>
        </div>
    }
}
