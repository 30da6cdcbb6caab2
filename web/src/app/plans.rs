//! Plans kept by name in this browser, and up to four of them beside the present scenario.

use std::sync::Arc;

use leptos::prelude::*;
use plimsoll_core::{Error, Scenario, summary};
use plimsoll_web::plans::{PINNED, Plan, Plans, differences};
use plimsoll_web::reading::Reading;
use plimsoll_web::wording::{distance, load};
use plimsoll_web::{beside, number};

use super::planner::{Planner, in_full};
use super::{address, browser, scheduler};

/// Where plans are kept.
const KEY: &str = "plimsoll-plans";

/// Size of the drawing of the timelines; it is stretched to the width there is.
const PLOT: (f64, f64) = (600.0, 200.0);

/// The plans of this page.
#[derive(Clone, Copy)]
pub struct PlanBook {
    plans: RwSignal<Plans>,
    refused: RwSignal<Option<String>>,
}

impl PlanBook {
    /// Opens on what this browser keeps, and on what the link brings along.
    pub fn open(planner: Planner) -> Self {
        let mut notices = Vec::new();
        let mut plans = match browser::kept(KEY).map(|text| Plans::parse(&text)) {
            Some(Ok((plans, left_out))) => {
                notices.extend(left_out);
                plans
            }
            Some(Err(fault)) => {
                notices.push(format!("The plans kept in this browser were left out: {}", in_full(&fault)));
                Plans::default()
            }
            None => Plans::default(),
        };
        let address = web_sys::window().and_then(|w| w.location().href().ok()).unwrap_or_default();
        match Plans::in_link(&address) {
            Some(Ok((brought, left_out))) => {
                notices.extend(left_out);
                notices.extend(plans.take_in(&brought));
            }
            Some(Err(fault)) => notices.push(format!("The link's plans were left out: {}", in_full(&fault))),
            None => {}
        }
        planner.notices.update(|all| all.extend(notices));
        let book = Self { plans: RwSignal::new(plans), refused: RwSignal::new(None) };
        // Whatever stands side by side is run, once.
        Effect::new(move || {
            book.plans.with(|plans| {
                for plan in plans.pinned() {
                    let known = planner.beside.with_untracked(|known| known.contains_key(&plan.id()));
                    if let Some(scenario) = plan.scenario().ok().filter(|_| !known) {
                        scheduler::beside(plan.id(), &scenario);
                    }
                }
            });
        });
        Effect::new(move || {
            let text = book.plans.with(Plans::text);
            if browser::kept(KEY).unwrap_or_else(|| Plans::default().text()) != text && !browser::keep(KEY, &text) {
                let sentence = "This browser keeps nothing for this page: plans last until it is closed.";
                book.refused.set(Some(sentence.to_owned()));
            }
        });
        book
    }

    /// Changes the plans, or says why they are not.
    fn change(self, edit: impl FnOnce(&mut Plans) -> Result<(), Error>) {
        let outcome = self.plans.try_update(edit);
        self.refused.set(outcome.and_then(Result::err).map(|fault| in_full(&fault)));
    }
}

#[component]
pub fn SideBySide() -> impl IntoView {
    let book: PlanBook = expect_context();
    view! {
        <section class="section plans" aria-labelledby="plans-title" data-testid="plans">
            <header class="section-head">
                <h2 id="plans-title" tabindex="-1">"Side by side"</h2>
                <p>
                    "Keep what you see as a plan, in this browser; up to four of them stand beside the present run."
                </p>
            </header>
            <KeepPlan book/>
            <p class="error" role="alert" data-testid="plans-refused">{move || book.refused.get()}</p>
            <PlanList book/>
            <Bars book/>
            <Curves book/>
            <CopyAll book/>
        </section>
    }
}

#[component]
fn KeepPlan(book: PlanBook) -> impl IntoView {
    let planner = Planner::get();
    let name = RwSignal::new(None::<String>);
    // What a plan is called until a person says otherwise.
    let wish = move || {
        let wish = planner.below.scenario.with(|s| format!("{}, {}", summary::model_name(s), load(s)));
        book.plans.with(|plans| plans.free_name(&wish))
    };
    let keep = move || {
        let called = name.get_untracked().filter(|n| !n.trim().is_empty()).unwrap_or_else(|| untrack(wish));
        let scenario = planner.scenario.get_untracked();
        book.change(|plans| {
            plans.keep(&called, &scenario)?;
            // Where four stand already it is kept all the same.
            let _ = plans.pin(&called, true);
            Ok(())
        });
        if book.refused.with_untracked(Option::is_none) {
            name.set(None);
        }
    };
    view! {
        <form
            class="keep-plan"
            on:submit=move |event| {
                event.prevent_default();
                keep();
            }
        >
            <label for="plan-name">"Name of the plan"</label>
            <input
                id="plan-name"
                data-testid="plan-name"
                type="text"
                autocomplete="off"
                maxlength="80"
                prop:value=move || name.get().unwrap_or_default()
                placeholder=wish
                on:input:target=move |event| name.set(Some(event.target().value()))
            />
            <button type="submit" class="take" data-testid="keep-plan">"keep this plan"</button>
        </form>
    }
}

/// Every plan: beside or not, taken, forgotten.
#[component]
fn PlanList(book: PlanBook) -> impl IntoView {
    let planner = Planner::get();
    let row = move |plan: Plan| {
        let Plan { name, pinned, .. } = plan.clone();
        let (pin, gone) = (name.clone(), name.clone());
        view! {
            <li class="plan" data-testid="plan">
                <label class="plan-pin">
                    <input
                        type="checkbox"
                        prop:checked=pinned
                        on:change:target=move |event| {
                            let wanted = event.target().checked();
                            book.change(|plans| plans.pin(&pin, wanted));
                            // What is refused is not ticked either.
                            event.target().set_checked(book.plans.with_untracked(|p| p.pinned().any(|p| p.name == pin)));
                        }
                    />
                    <span>{name.clone()}</span>
                </label>
                <button
                    type="button"
                    class="take"
                    aria-label=format!("open {name}")
                    on:click=move |_| match plan.scenario() {
                        Ok(scenario) => {
                            planner.set(scenario);
                            browser::focus("verdict");
                        }
                        Err(fault) => book.refused.set(Some(in_full(&fault))),
                    }
                >
                    "open"
                </button>
                <button
                    type="button"
                    class="take"
                    aria-label=format!("forget {name}")
                    on:click=move |_| {
                        book.change(|plans| {
                            plans.remove(&gone);
                            Ok(())
                        });
                        browser::focus("plans-title");
                    }
                >
                    "forget"
                </button>
            </li>
        }
    };
    view! {
        <ul class="plan-list" aria-label="Kept plans">
            {move || book.plans.with(|plans| plans.iter().cloned().collect::<Vec<_>>()).into_iter().map(row).collect_view()}
        </ul>
    }
}

/// One run of the comparison.
#[derive(Clone)]
struct Entry {
    name: String,
    scenario: Scenario,
    /// `None` while it is run.
    reading: Option<Result<Arc<Reading>, Error>>,
}

impl Entry {
    /// What is known of it.
    fn known(&self) -> Option<&Reading> {
        self.reading.as_ref()?.as_ref().ok().map(AsRef::as_ref)
    }
}

/// The present run first, then the plans beside it.
fn entries(planner: Planner, book: PlanBook) -> Vec<Entry> {
    let now = Entry {
        name: "Now".to_owned(),
        scenario: planner.below.scenario.get(),
        reading: planner.fault.get().map(Err).or_else(|| planner.below.reading.get().map(Ok)),
    };
    let plans = book.plans.with(|plans| {
        let entry = |plan: &Plan| {
            let reading = planner.beside.with(|known| known.get(&plan.id()).cloned());
            Some(Entry { name: plan.name.clone(), scenario: plan.scenario().ok()?, reading })
        };
        plans.pinned().filter_map(entry).collect::<Vec<_>>()
    });
    if plans.is_empty() { Vec::new() } else { std::iter::once(now).chain(plans).collect() }
}

fn known(entries: &[Entry]) -> impl Iterator<Item = &Reading> {
    entries.iter().filter_map(Entry::known)
}

/// Each run's stack on one scale, with the load line of its card and what sets it apart.
#[component]
fn Bars(book: PlanBook) -> impl IntoView {
    let planner = Planner::get();
    move || {
        let entries = entries(planner, book);
        let scale = beside::scale(known(&entries));
        let now = entries.first().cloned();
        let rows = entries.into_iter().enumerate().map(|(index, entry)| {
            let own = now.as_ref().filter(|_| index > 0);
            let bar = entry.known().map(|reading| beside::bar(reading, scale));
            view! { <BarRow index entry bar now=own.cloned()/> }
        });
        let rows = rows.collect::<Vec<_>>();
        (!rows.is_empty()).then(|| view! { <ol class="beside" data-testid="beside">{rows}</ol> })
    }
}

#[component]
fn BarRow(index: usize, entry: Entry, bar: Option<beside::Bar>, now: Option<Entry>) -> impl IntoView {
    let Entry { name, scenario, reading } = entry.clone();
    let (figures, deep) = match &reading {
        None => ("is being run …".to_owned(), false),
        Some(Err(fault)) => (in_full(fault), false),
        Some(Ok(reading)) => {
            let words = format!(
                "{}: {} at its deepest, {}",
                reading.standing.label(),
                number::bytes(reading.process),
                distance(reading.headroom)
            );
            (words, reading.standing.below())
        }
    };
    let apart = now.map(|now| {
        let process = |entry: &Entry| entry.known().map(|r| i64::try_from(r.process.get()).unwrap_or(i64::MAX));
        let change = process(&entry).zip(process(&now)).map(|(own, now)| own - now);
        let change = change.map(|change| format!("{} GiB against now", number::signed(change)));
        let named = differences(&now.scenario, &scenario);
        let named =
            if named.is_empty() { "the same scenario".to_owned() } else { format!("differs in {}", named.join(", ")) };
        change.into_iter().chain([named]).collect::<Vec<_>>().join("; ")
    });
    view! {
        <li class="beside-run">
            <p class="beside-name">
                <svg class="beside-key" viewBox="0 0 30 10" width="30" height="10" aria-hidden="true">
                    <path class=format!("curve curve-{index}") d="M0 5H30"/>
                </svg>
                <strong>{name}</strong>
                " "
                <small>{summary::model_name(&scenario)} ", " {load(&scenario)} ", on " {summary::card_name(&scenario)}</small>
            </p>
            <svg class="beside-bar" width="100%" height="26" aria-hidden="true">
                {bar
                    .map(|bar| {
                        let segments = bar
                            .segments
                            .into_iter()
                            .map(|(kind, from, width)| {
                                view! {
                                    <rect
                                        class=format!("segment {}", kind.class())
                                        x=format!("{from:.3}%")
                                        width=format!("{width:.3}%")
                                        y="4"
                                        height="18"
                                    />
                                }
                            })
                            .collect_view();
                        let line = format!("{:.3}%", bar.line);
                        view! {
                            {segments}
                            <line class="line-through" x1=line.clone() x2=line y1="0" y2="26"/>
                        }
                    })}
            </svg>
            <p class="beside-figures" class:is-below=deep>{figures}</p>
            {apart.map(|apart| view! { <p class="aside">{apart}</p> })}
        </li>
    }
}

/// Their timelines on one axis.
#[component]
fn Curves(book: PlanBook) -> impl IntoView {
    let planner = Planner::get();
    let (width, height) = PLOT;
    move || {
        let entries = entries(planner, book);
        let scale = beside::scale(known(&entries));
        let all = known(&entries).count();
        (all > 1).then(|| {
            let paths = entries.iter().enumerate().filter_map(|(index, entry)| {
                let d = beside::curve(entry.known()?, scale, width, height);
                Some(view! { <path class=format!("curve curve-{index}") d=d vector-effect="non-scaling-stroke"/> })
            });
            let paths = paths.collect::<Vec<_>>();
            let words = format!("Live memory over the steps of {all} runs on one axis, up to {}", number::bytes(scale));
            view! {
                <figure class="curves">
                    <svg
                        viewBox=format!("0 0 {width} {height}")
                        preserveAspectRatio="none"
                        width="100%"
                        height=height
                        role="img"
                        aria-label=words
                    >
                        {paths}
                    </svg>
                    <figcaption>
                        "Live memory from the first allocation to the last, each run drawn equally long; the top is "
                        {number::bytes(scale)} "."
                    </figcaption>
                </figure>
            }
        })
    }
}

/// One link for all of them.
#[component]
fn CopyAll(book: PlanBook) -> impl IntoView {
    let planner = Planner::get();
    let said = RwSignal::new("");
    let copy = move |_| {
        let link = planner.scenario.with_untracked(address::link);
        if let Some(packed) = book.plans.with_untracked(Plans::packed) {
            let sign = if link.contains('#') { '&' } else { '#' };
            let key = plimsoll_core::scenario::BESIDE;
            let done = move |copied| {
                said.set(if copied { "Copied." } else { "This browser does not let the page copy." });
            };
            browser::copy(&format!("{link}{sign}{key}={packed}"), done);
        }
    };
    view! {
        <p class="copy-all" hidden=move || book.plans.with(|plans| plans.pinned().next().is_none())>
            <button type="button" class="take" data-testid="copy-plans" on:click=copy>
                "copy one link for all of them"
            </button>
            " "
            <span role="status">{move || said.get()}</span>
        </p>
    }
}

const _: () = assert!(PINNED == 4, "the page says how many stand side by side, and each has a line of its own");
