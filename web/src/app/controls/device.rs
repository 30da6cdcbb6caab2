//! The card, and what of it a run may use.

use leptos::prelude::*;
use plimsoll_core::catalog::search;
use plimsoll_core::scenario::{Change, Group, at, lever};
use plimsoll_core::summary;
use plimsoll_web::number;

use super::lever::Levers;
use crate::app::planner::Planner;
use crate::app::widgets::{Combobox, Item};

#[component]
pub fn DeviceChoice() -> impl IntoView {
    let planner = Planner::get();
    // How many cards the search last asked for: "8xH100".
    let asked = StoredValue::new(1);
    let find = Callback::new(move |query: String| {
        let (cards, _) = search::count(&query);
        asked.set_value(cards);
        let many = if cards > 1 { format!(" · {} of them", number::grouped(cards)) } else { String::new() };
        search::find_gpus(&query)
            .into_iter()
            .map(|g| Item {
                id: g.id,
                name: g.name,
                detail: format!("{} · {}{many}", number::bytes(g.memory), g.architecture),
            })
            .collect::<Vec<_>>()
    });
    let choose = Callback::new(move |id: &'static str| {
        let card = lever(at::device::gpu).map(|lever| Change::Set(lever, id.into()));
        let cards = asked.get_value();
        let many = lever(at::parallel::gpus).filter(|_| cards > 1).map(|lever| Change::Set(lever, cards.into()));
        let outcome = card.into_iter().chain(many).try_for_each(|change| planner.change(&change));
        if let Err(fault) = outcome {
            planner.fault.set(Some(fault));
        }
    });
    let help = Signal::derive(move || {
        planner.below.reading.with(|r| {
            r.as_ref().map_or_else(String::new, |r| {
                format!("{} for one process, load line {}", number::bytes(r.capacity), number::bytes(r.load_line))
            })
        })
    });
    view! {
        <Combobox
            id="gpu-search"
            label="Device"
            help=help
            value=Signal::derive(move || planner.scenario.with(summary::card_name))
            find=find
            choose=choose
        />
        <Levers group=Group::Parallel/>
        <div class="folds">
            <Show when=move || planner.scenario.with(|s| s.parallel.gpus > 1)>
                <details class="fold">
                    <summary>"How the strategy goes about it"</summary>
                    <Levers group=Group::Spread/>
                </details>
            </Show>
            <details class="fold">
                <summary>"Memory and load line"</summary>
                <div class="size-grid">
                    <Levers group=Group::Card/>
                </div>
            </details>
        </div>
    }
}
