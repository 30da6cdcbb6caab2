//! The control of a lever: which one goes by what the lever holds, and its words are the table's.

use leptos::prelude::*;
use plimsoll_core::scenario::{Change, Group, Kind, Lever, Mode, at, lever, levers};
use plimsoll_web::wording::sentence;
use plimsoll_web::{control, engine, field, number};
use serde_json::Value;

use crate::app::planner::{Planner, in_full};
use crate::app::widgets::{NumberField, Segments, Switch, TextField};

/// The controls of a group, in the table's order, but for what decides: that comes first. Each is there while the scenario
/// leaves it a choice.
#[component]
pub fn Levers(group: Group) -> impl IntoView {
    let own = |lever: &&'static Lever| lever.row.group == group && !matches!(lever.row.kind, Kind::Id);
    let mut levers: Vec<&'static Lever> = levers().filter(own).collect();
    levers.sort_by_key(|lever| lever.path != at::training::quantization);
    levers.into_iter().map(|lever| view! { <LeverControl lever/> }).collect_view()
}

#[component]
fn LeverControl(lever: &'static Lever) -> impl IntoView {
    let planner = Planner::get();
    let shown = Memo::new(move |_| planner.below.scenario.with(|s| control::is_shown(lever, s)));
    view! {
        <Show when=move || shown.get()>
            {match lever.row.kind {
                Kind::Count { most } => view! { <Number lever most/> }.into_any(),
                Kind::Flag => view! { <Flag lever/> }.into_any(),
                Kind::Words(_) => view! { <Words lever/> }.into_any(),
                Kind::Amount { .. }
                | Kind::Power { .. }
                | Kind::Fraction
                | Kind::Names { .. }
                | Kind::Size
                | Kind::Version { .. }
                | Kind::Id => {
                    view! { <Text lever/> }.into_any()
                }
            }}
        </Show>
    }
}

/// The value of a lever, as it changes.
fn value(planner: Planner, lever: &'static Lever) -> Memo<Option<Value>> {
    Memo::new(move |_| planner.scenario.with(|s| lever.get(s)))
}

fn id(lever: &'static Lever) -> String {
    lever.id("-")
}

/// What the lever does, and what it is when nothing is said, where that is no constant.
fn help(lever: &'static Lever) -> String {
    let row = &lever.row;
    let default = if row.otherwise.is_empty() { String::new() } else { sentence(&format!("empty: {}", row.otherwise)) };
    let empties = matches!(row.kind, Kind::Size | Kind::Names { .. });
    format!("{} {}", sentence(row.help), if empties { default } else { String::new() }).trim().to_owned()
}

#[component]
fn Number(lever: &'static Lever, most: u64) -> impl IntoView {
    let planner = Planner::get();
    let now = value(planner, lever);
    // Where positions are a table, a slider ends at the last of them.
    let most = Signal::derive(move || match lever.path {
        at::input::seq => planner.scenario.with(engine::longest).min(most),
        _ => most,
    });
    let help = Signal::derive(move || match lever.path {
        at::input::batch => planner.scenario.with(effective),
        _ => help(lever),
    });
    let set = Callback::new(move |n: u64| planner.change(&Change::Set(lever, n.into())));
    let value = Signal::derive(move || now.get().and_then(|value| value.as_u64()).unwrap_or(1));
    let fault = planner.fault_at(lever.path);
    match lever.row.slide {
        Some(slide) => {
            view! { <NumberField id=id(lever) label=lever.row.label help value fault most slide set/> }.into_any()
        }
        None => view! { <NumberField id=id(lever) label=lever.row.label help value fault most set/> }.into_any(),
    }
}

/// What a micro-batch is worth in one step.
fn effective(scenario: &plimsoll_core::Scenario) -> String {
    let accumulation = scenario.training.accumulation;
    if accumulation > 1 && scenario.training.mode == Mode::Train {
        let batch = scenario.input.batch.saturating_mul(accumulation);
        return format!("Samples at once; {} in one optimizer step.", number::grouped(batch));
    }
    lever(at::input::batch).map(|lever| sentence(lever.row.help)).unwrap_or_default()
}

#[component]
fn Flag(lever: &'static Lever) -> impl IntoView {
    let planner = Planner::get();
    let now = value(planner, lever);
    view! {
        <Switch
            id=id(lever)
            label=lever.row.label
            help=help(lever)
            value=Signal::derive(move || now.get() == Some(true.into()))
            set=Callback::new(move |on: bool| planner.change(&Change::Set(lever, on.into())))
        />
    }
}

#[component]
fn Words(lever: &'static Lever) -> impl IntoView {
    let planner = Planner::get();
    let now = value(planner, lever);
    let words = Memo::new(move |_| planner.below.scenario.with(|s| control::words(lever, s)));
    let most = if let Kind::Words(words) = lever.row.kind { words.len() } else { 0 };
    view! {
        <Segments
            name=id(lever)
            label=lever.row.label
            words=words
            most
            value=Signal::derive(move || field::text(now.get().as_ref()))
            set=Callback::new(move |word: &'static str| planner.change(&Change::Set(lever, word.into())))
        />
    }
}

#[component]
fn Text(lever: &'static Lever) -> impl IntoView {
    let planner = Planner::get();
    let now = value(planner, lever);
    let set = Callback::new(move |draft: String| {
        let value = field::draft(lever, &draft)?;
        planner.change(&Change::Set(lever, value)).map_err(|fault| in_full(&fault))
    });
    // What holds where nothing is said.
    let placeholder = Signal::derive(move || {
        planner.below.reading.with(|reading| match (lever.path, reading) {
            (at::device::memory, Some(reading)) => number::bytes(reading.capacity),
            (at::device::load_line, Some(reading)) => number::bytes(reading.load_line),
            _ => String::new(),
        })
    });
    view! {
        <TextField
            id=id(lever)
            label=lever.row.label
            help=help(lever)
            value=Signal::derive(move || field::text(now.get().as_ref()))
            placeholder
            fault=planner.fault_at(lever.path)
            set
        />
    }
}
