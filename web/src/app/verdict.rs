//! The verdict in numbers.

use leptos::prelude::*;
use plimsoll_core::estimate::fit::{Plan, Recipe};
use plimsoll_core::{Bytes, Result, Scenario, summary};
use plimsoll_web::{number, wording};

use super::browser;
use super::course::Course;
use super::fleet::FleetFigure;
use super::glossary::Term;
use super::host::{MachineMemory, OtherCards};
use super::planner::Planner;

/// How long, in ms, the spoken verdict waits for typing to rest.
const SPEAK: i32 = 500;

#[component]
pub fn VerdictPanel() -> impl IntoView {
    let planner = Planner::get();
    let reading = planner.reading;
    let title = move || planner.scenario.with(summary::model_name);
    let card = move || planner.scenario.with(summary::card_name);
    // Two tabs are two runs: each says which it is.
    Effect::new(move || {
        let standing = reading.with(|r| r.as_ref().map_or("No estimate", |r| r.standing.label()));
        if let Some(document) = browser::document() {
            document.set_title(&format!("{}: {} on {} · Plimsoll", standing, title(), card()));
        }
    });
    let load = move || planner.scenario.with(wording::load);
    let side = Signal::derive(move || wording::side(reading.with(|r| r.as_ref().map_or(0, |r| r.headroom))));
    view! {
        <div class="verdict-panel" id="verdict" tabindex="-1">
            <p class="verdict-subject">
                <strong>{title}</strong>
                <span>{load}</span>
                <span>"on " {card}</span>
            </p>
            <p class="verdict" data-testid="verdict">
                {move || reading.with(|r| r.as_ref().map_or("No estimate", |r| r.standing.label()))}
            </p>
            <Refusal/>
            <dl class="figures">
                <div class="figure figure-peak">
                    <dt><Term word="process peak" text="Process peak"/></dt>
                    <dd data-testid="peak-process">
                        <Figure bytes=move || reading.with(|r| r.as_ref().map(|r| r.process))/>
                    </dd>
                </div>
                <div class="figure figure-headroom">
                    <dt><Term word="over by, to spare" text=side/></dt>
                    <dd data-testid="headroom">
                        <Figure bytes=move || {
                            reading.with(|r| r.as_ref().map(|r| Bytes::new(r.headroom.unsigned_abs())))
                        }/>
                    </dd>
                </div>
                <div class="figure figure-largest" class:is-pending=move || planner.awaits(planner.largest.with(Option::is_none))>
                    <dt><Term word="largest batch" text="Largest batch"/></dt>
                    <dd data-testid="max-batch"><LargestBatch/></dd>
                </div>
            </dl>
            <Course/>
            <Remedies/>
            <p class="where">
                {move || reading.with(|r| r.as_ref().map(|r| wording::peak(r)))}
            </p>
            <FleetFigure/>
            <OtherCards/>
            <MachineMemory/>
            <Warnings/>
            <Spoken/>
        </div>
    }
}

/// A number set large with its unit set small.
#[component]
fn Figure(bytes: impl Fn() -> Option<Bytes> + Send + Sync + 'static) -> impl IntoView {
    let parts = Memo::new(move |_| bytes().map_or(("–".to_owned(), ""), number::parts));
    view! {
        <span class="number">{move || parts.get().0}</span>
        " "
        <span class="unit">{move || parts.get().1}</span>
    }
}

/// The largest batch; clicking it takes it.
#[component]
fn LargestBatch() -> impl IntoView {
    let planner = Planner::get();
    let last = RwSignal::new(None::<u64>);
    Effect::new(move || {
        if let Some(Ok(batch)) = planner.largest.get() {
            last.set(Some(batch));
        }
    });
    view! {
        <span class="number">
            {move || match (planner.largest.get(), last.get()) {
                (Some(Ok(0)), _) => "none".to_owned(),
                (Some(Ok(batch)), _) | (None, Some(batch)) => number::grouped(batch),
                _ => "–".to_owned(),
            }}
        </span>
        {move || {
            let now = planner.scenario.with(|s| s.input.batch);
            planner
                .largest
                .get()
                .and_then(Result::ok)
                .filter(|&batch| batch > 0 && batch != now)
                .map(|batch| {
                    view! {
                        " "
                        <button
                            type="button"
                            class="take"
                            on:click=move |_| planner.take_sizes(batch, None)
                        >
                            "take it"
                        </button>
                    }
                })
        }}
    }
}

/// Why there is no estimate.
#[component]
fn Refusal() -> impl IntoView {
    let planner = Planner::get();
    view! {
        <div class="refusal-slot" role="alert">
            {move || {
                planner
                    .fault
                    .get()
                    .map(|fault| {
                        view! {
                            <div class="refusal" data-testid="fault">
                                <p><code>{fault.key}</code> " " {fault.problem} "."</p>
                                <p>{wording::sentence(&fault.hint)}</p>
                                <p class="aside">"The figures are those of the last scenario that could be run."</p>
                            </div>
                        }
                    })
            }}
            {move || {
                let labels = planner.amiss.with(|amiss| amiss.values().map(String::as_str).collect::<Vec<_>>().join(", "));
                (!labels.is_empty())
                    .then(|| {
                        view! {
                            <p class="refusal" data-testid="amiss">
                                "No value stands in: " <strong>{labels}</strong> ". The figures are for "
                                {planner.scenario.with(wording::load)} "."
                            </p>
                        }
                    })
            }}
        </div>
    }
}

/// Recipes with which a run fits that does not: the first few, each a click away.
#[component]
fn Remedies() -> impl IntoView {
    let planner = Planner::get();
    let deep = move || planner.reading.with(|r| r.as_ref().is_some_and(|r| r.standing.below()));
    view! {
        <div class="remedies" hidden=move || !deep()>
            <p class="remedies-title">"It fits with"</p>
            <ul>
                {move || {
                    let found = match (planner.plans.get(), planner.fit.get()) {
                        (Some(plans), _) => Some(plans.map(|plans| {
                            let one = |plan: &Plan| (plan.name.clone(), plan.process, plan.scenario());
                            plans.plans.iter().take(REMEDIES).map(one).collect::<Vec<_>>()
                        })),
                        (None, Some(fit)) => Some(fit.map(|fit| {
                            let one = |recipe: &Recipe| (recipe.name.clone(), recipe.process, recipe.scenario());
                            fit.recipes.iter().take(REMEDIES).map(one).collect::<Vec<_>>()
                        })),
                        (None, None) => None,
                    };
                    match found {
                        None => view! { <li class="remedy-none">"…"</li> }.into_any(),
                        Some(Err(_)) => view! { <li class="remedy-none">"not known"</li> }.into_any(),
                        Some(Ok(found)) if found.is_empty() => {
                            view! { <li class="remedy-none">"nothing on this card: " <a href="#fit-title">"what comes nearest"</a></li> }
                                .into_any()
                        }
                        Some(Ok(found)) => found.into_iter().map(remedy).collect_view().into_any(),
                    }
                }}
            </ul>
        </div>
    }
}

/// A recipe or a plan by its name, with its peak.
fn remedy((name, process, scenario): (String, Bytes, Result<Scenario>)) -> impl IntoView {
    let planner = Planner::get();
    view! {
        <li>
            <button
                type="button"
                class="take remedy"
                on:click=move |_| {
                    planner.take(scenario.clone());
                    browser::focus("verdict");
                }
            >
                {name} " " <strong>{number::gib(process)}</strong>
            </button>
        </li>
    }
}

/// How many recipes stand beside the verdict; all of them are in the section below.
const REMEDIES: usize = 3;

#[component]
fn Warnings() -> impl IntoView {
    let planner = Planner::get();
    move || {
        let warnings = planner.reading.with(|r| r.as_ref().map(|r| r.warnings.clone()).unwrap_or_default());
        (!warnings.is_empty()).then(|| {
            view! {
                <ul class="warnings">
                    {warnings.into_iter().map(|w| view! { <li>{wording::sentence(&w)}</li> }).collect_view()}
                </ul>
            }
        })
    }
}

/// The verdict for those who listen, when typing rests.
#[component]
fn Spoken() -> impl IntoView {
    let planner = Planner::get();
    let text = RwSignal::new(String::new());
    let timer = StoredValue::new(None::<i32>);
    Effect::new(move || {
        let sentence = planner.reading.with(|r| r.as_ref().map(|r| wording::verdict(r)).unwrap_or_default());
        if let Some(timer) = timer.get_value() {
            browser::cancel(timer);
        }
        timer.set_value(browser::after(SPEAK, move || text.set(sentence)));
    });
    view! { <p class="unseen" role="status" data-testid="verdict-status">{move || text.get()}</p> }
}
