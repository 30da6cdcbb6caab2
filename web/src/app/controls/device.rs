//! The card, and what of it a run may use.

use leptos::prelude::*;
use plimsoll_core::scenario::{Device, print_memory};
use plimsoll_core::{Bytes, catalog};
use plimsoll_web::reading::Reading;
use plimsoll_web::search::search;
use plimsoll_web::wording::sentence;
use plimsoll_web::{engine, field, number};

use crate::app::planner::Planner;
use crate::app::widgets::{Combobox, Item, TextField};

#[component]
pub fn DeviceChoice() -> impl IntoView {
    let planner = Planner::get();
    let find = Callback::new(|query: String| {
        let gpus = catalog::gpus();
        search(&query, gpus.iter().map(|g| (g.id, g.name, g.architecture)))
            .into_iter()
            .filter_map(|index| gpus.get(index))
            .map(|g| Item {
                id: g.id,
                name: g.name,
                detail: format!("{} · {}", number::bytes(g.memory), g.architecture),
            })
            .collect::<Vec<_>>()
    });
    let choose = Callback::new(move |id: &'static str| {
        // Another card: what was said about the memory of the last one no longer holds.
        planner.change(|s| {
            s.device.gpu = id.to_owned();
            s.device.memory = None;
            s.device.load_line = None;
        });
    });
    let help = Signal::derive(move || {
        planner.reading.with(|r| {
            r.as_ref().map_or_else(String::new, |r| {
                format!("Gives one process {}; load line at {}.", number::bytes(r.capacity), number::bytes(r.load_line))
            })
        })
    });
    view! {
        <Combobox
            id="gpu-search"
            label="Device"
            help=help
            value=Signal::derive(move || planner.scenario.with(engine::card_name))
            find=find
            choose=choose
        />
        <details class="fold">
            <summary>"Memory and load line"</summary>
            <div class="size-grid">
                <Override
                    id="memory"
                    label="Memory"
                    help="What one process can use, in GiB, where it is not the card's own."
                    card=|r| r.capacity
                    get=|d| d.memory
                    set=|d, bytes| d.memory = bytes
                />
                <Override
                    id="load-line"
                    label="Load line"
                    help="How deep the run may sit, in GiB; empty is 92 % of the memory."
                    card=|r| r.load_line
                    get=|d| d.load_line
                    set=|d, bytes| d.load_line = bytes
                />
            </div>
        </details>
    }
}

/// A size that stands in for the card's own.
#[component]
fn Override(
    id: &'static str,
    label: &'static str,
    help: &'static str,
    card: fn(&Reading) -> Bytes,
    get: fn(&Device) -> Option<Bytes>,
    set: fn(&mut Device, Option<Bytes>),
) -> impl IntoView {
    let planner = Planner::get();
    let value = Signal::derive(move || planner.scenario.with(|s| get(&s.device)).map(print_memory).unwrap_or_default());
    let placeholder = Signal::derive(move || {
        planner.reading.with(|r| r.as_ref().map(|r| number::bytes(card(r))).unwrap_or_default())
    });
    let put = Callback::new(move |text: String| {
        let bytes = field::memory(&text)?;
        planner
            .try_change(|s| set(&mut s.device, bytes))
            .map_err(|fault| format!("{} {}", sentence(&fault.problem), sentence(&fault.hint)))
    });
    view! { <TextField id label help value placeholder set=put/> }
}
