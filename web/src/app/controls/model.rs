//! The model, from the catalog.

use leptos::prelude::*;
use plimsoll_core::catalog::search;
use plimsoll_core::scenario::Mode;
use plimsoll_core::summary;
use plimsoll_web::{engine, number};

use crate::app::hulls;
use crate::app::planner::Planner;
use crate::app::widgets::{Combobox, Item};

#[component]
pub fn ModelChoice() -> impl IntoView {
    let planner = Planner::get();
    let find = Callback::new(|query: String| {
        search::find_named(&query)
            .into_iter()
            .map(|m| Item {
                id: m.id(),
                name: m.name(),
                detail: format!("{} · {}", number::count(m.parameters()), m.publisher()),
            })
            .collect::<Vec<_>>()
    });
    let choose = Callback::new(move |id: &'static str| {
        if let Err(fault) = hulls::choose(planner, id) {
            planner.fault.set(Some(fault));
        }
    });
    let help = Signal::derive(move || {
        let layers = planner.below.scenario.with(engine::layers).map(|n| format!(", {n} layers")).unwrap_or_default();
        let trains = planner.below.scenario.with(|s| s.training.mode == Mode::Train);
        planner.below.reading.with(|r| match r.as_ref().map(|r| (r.parameters, r.trainable)) {
            Some((total, trained)) if trains && trained < total => {
                format!("{} parameters, {} trained{layers}", number::count(total), number::count(trained))
            }
            Some((total, _)) => format!("{} parameters{layers}", number::count(total)),
            None => String::new(),
        })
    });
    view! {
        <Combobox
            id="model-search"
            label="From the catalog"
            help=help
            value=Signal::derive(move || planner.scenario.with(summary::model_name))
            find=find
            choose=choose
        />
    }
}
