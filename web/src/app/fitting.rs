//! Make it fit: complete recipes for a run that does not, and the cards that hold it as it is.

use leptos::prelude::*;
use plimsoll_core::estimate::Verdict;
use plimsoll_core::estimate::fit::{Berthed, Cards, Fit, Miss, Recipe};
use plimsoll_core::scenario::{Change, at, lever};
use plimsoll_web::number;
use plimsoll_web::wording::{distance, sentence};

use super::browser;
use super::planner::Planner;
use super::planning::{FindThePlan, Planned};

/// Cards that are listed; the terminal lists all.
const CARDS: usize = 12;

#[component]
pub fn MakeItFit() -> impl IntoView {
    let planner = Planner::get();
    let deep = Memo::new(move |_| planner.below.reading.with(|r| r.as_ref().is_some_and(|r| r.standing.below())));
    let several = Memo::new(move |_| planner.below.scenario.with(|s| s.parallel.gpus > 1));
    let shown = move || deep.get() || several.get();
    let busy = move || {
        if several.get() {
            planner.planned.get().is_some() && planner.plans.with(Option::is_none)
        } else {
            planner.fit.with(Option::is_none)
        }
    };
    view! {
        <section class="section fitting" aria-labelledby="fit-title" hidden=move || !shown()>
            <header class="section-head">
                <h2 id="fit-title" tabindex="-1">{move || if several.get() { "Find the plan" } else { "Make it fit" }}</h2>
                <p>
                    {move || {
                        if several.get() {
                            "Strategy, sharding, recomputing, offload and micro-batch; the samples of a step stay. Every plan was run whole by the engine; the cheapest first."
                        } else {
                            "Complete recipes that keep the effective batch and every token, each run by the engine; the least sacrifice first."
                        }
                    }}
                </p>
            </header>
            <div class="fitting-body" data-testid="fit" aria-busy=move || busy().to_string()>
                {move || {
                    if several.get() {
                        return match planner.plans.get() {
                            None => view! { <FindThePlan deep=deep.get()/> }.into_any(),
                            Some(Err(fault)) => view! { <p class="aside">{sentence(&fault.problem)}</p> }.into_any(),
                            Some(Ok(plans)) => view! { <Planned plans=(*plans).clone()/> }.into_any(),
                        };
                    }
                    match planner.fit.get() {
                        None => view! { <p class="aside">"Trying combinations of levers …"</p> }.into_any(),
                        Some(Err(fault)) => view! { <p class="aside">{sentence(&fault.problem)}</p> }.into_any(),
                        Some(Ok(fit)) => view! { <Found fit=(*fit).clone()/> }.into_any(),
                    }
                }}
            </div>
            <div hidden=move || !deep.get()>
                <WhichCard/>
            </div>
        </section>
    }
}

#[component]
fn Found(fit: Fit) -> impl IntoView {
    let runs = number::grouped(fit.runs);
    match fit.nearest {
        Some(miss) => view! { <Nothing miss runs/> }.into_any(),
        None => view! {
            <ol class="recipes">
                {fit.recipes.into_iter().map(|recipe| view! { <RecipeRow recipe/> }).collect_view()}
            </ol>
            <p class="aside">{runs} " runs searched."</p>
        }
        .into_any(),
    }
}

#[component]
fn RecipeRow(recipe: Recipe) -> impl IntoView {
    let planner = Planner::get();
    let name = recipe.name.clone();
    let label = format!("take it: {name}");
    let figures = format!("{} at its deepest, {}", number::bytes(recipe.process), distance(recipe.headroom));
    let sizes = match recipe.longest_seq {
        Some(seq) => format!(
            "Largest batch {}; sequences of {} tokens fit.",
            number::grouped(recipe.largest_batch),
            number::grouped(seq)
        ),
        None => format!("Largest batch {}.", number::grouped(recipe.largest_batch)),
    };
    let costs = recipe.costs.iter().map(|cost| (cost.kind.label(), sentence(&cost.words))).collect::<Vec<_>>();
    view! {
        <li class="recipe">
            <div class="recipe-head">
                <h3>{name}</h3>
                <p class="recipe-figures">{figures}</p>
            </div>
            <button
                type="button"
                class="take"
                aria-label=label
                on:click=move |_| {
                    planner.take(recipe.scenario());
                    browser::focus("verdict");
                }
            >
                "take it"
            </button>
            <p class="recipe-sizes">{sizes}</p>
            <dl class="costs">
                {costs
                    .into_iter()
                    .map(|(kind, words)| view! { <div><dt>{kind}</dt><dd>{words}</dd></div> })
                    .collect_view()}
            </dl>
        </li>
    }
}

#[component]
fn Nothing(miss: Miss, runs: String) -> impl IntoView {
    let planner = Planner::get();
    let sequence = planner.scenario.with_untracked(|s| s.input.seq.is_some());
    view! {
        <p>
            <strong>"Nothing fits this card."</strong> " The whole space was searched, " {runs} " runs. Nearest is "
            <strong>{miss.name}</strong> ": " {number::bytes(miss.process)} ", over by " {number::bytes(miss.over)} "."
        </p>
        <CardList cards=miss.cards title="The smallest cards that hold that:"/>
        {sequence
            .then(|| {
                view! {
                    <p>
                        <button type="button" class="take" on:click=move |_| planner.allow_shorter()>
                            "try shorter sequences too"
                        </button>
                    </p>
                }
            })}
    }
}

/// The reverse question, asked by a button: it is a run on every card.
#[component]
fn WhichCard() -> impl IntoView {
    let planner = Planner::get();
    view! {
        <div class="which-card" data-testid="which-card">
            {move || match planner.cards.get() {
                None => view! {
                    <button type="button" class="take" on:click=move |_| planner.seek_cards()>
                        "which card holds it as it is?"
                    </button>
                }
                .into_any(),
                Some(Err(fault)) => view! { <p class="aside">{sentence(&fault.problem)}</p> }.into_any(),
                Some(Ok(cards)) => view! { <Holding cards=(*cards).clone()/> }.into_any(),
            }}
        </div>
    }
}

#[component]
fn Holding(cards: Cards) -> impl IntoView {
    if cards.cards.is_empty() {
        return view! { <p>"No card of the " {cards.of} " in the catalog holds it as it is."</p> }.into_any();
    }
    let all = cards.cards.len();
    let first: Vec<Berthed> = cards.cards.into_iter().take(CARDS).collect();
    let more = all.saturating_sub(first.len());
    view! {
        <CardList cards=first title="Held as it is by, smallest first:"/>
        {(more > 0).then(|| view! { <p class="aside">{format!("And by {more} larger ones.")}</p> })}
    }
    .into_any()
}

#[component]
pub fn CardList(cards: Vec<Berthed>, title: &'static str) -> impl IntoView {
    let planner = Planner::get();
    (!cards.is_empty()).then(|| {
        view! {
            <p class="remedies-title">{title}</p>
            <ul class="card-list">
                {cards
                    .into_iter()
                    .map(|card| {
                        let tight = if card.verdict == Verdict::Tight { ", tight" } else { "" };
                        let text = format!("{} · {}{tight}", number::bytes(card.memory), distance(card.headroom));
                        let id = card.gpu;
                        let choose = move |_| {
                            let change = lever(at::device::gpu).map(|lever| Change::Set(lever, id.clone().into()));
                            if let Some(Err(fault)) = change.map(|change| planner.change(&change)) {
                                planner.fault.set(Some(fault));
                            }
                            browser::focus("verdict");
                        };
                        view! {
                            <li>
                                <button type="button" class="take" on:click=choose>{card.name} " " <small>{text}</small></button>
                            </li>
                        }
                    })
                    .collect_view()}
            </ul>
        }
    })
}
