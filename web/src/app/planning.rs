//! Find the plan: how several cards hold a run, and why every other way is none.

use leptos::prelude::*;
use plimsoll_core::estimate::fit::{Miss, Plan, Plans, Rejected};
use plimsoll_core::summary::plan;
use plimsoll_web::number;
use plimsoll_web::wording::{distance, sentence};

use super::browser;
use super::fitting::CardList;
use super::planner::Planner;

/// Before there is an answer: how far the search is, or the button that begins it.
#[component]
pub fn FindThePlan(deep: bool) -> impl IntoView {
    let planner = Planner::get();
    move || match planner.planned.get() {
        None if !deep && !planner.pending.get() => view! {
            <button type="button" class="take" data-testid="find-plans" on:click=move |_| planner.seek_plans()>
                "which plans hold it, and which is cheapest?"
            </button>
        }
        .into_any(),
        Some((done, of)) if of > 0 => view! {
            <p class="aside" role="status">{format!("Searching: {done} of {of} ways …")}</p>
            <progress class="searching" aria-label="Ways searched" max=of.to_string() value=done.to_string()></progress>
        }
        .into_any(),
        _ => view! { <p class="aside">"Searching ways to spread it …"</p> }.into_any(),
    }
}

#[component]
pub fn Planned(plans: Plans) -> impl IntoView {
    let searched = format!("{}.", plan::searched(&plans));
    let rates = format!("Rates: {}; the card's dense peak. NCCL's own buffers are in no peak.", plans.rates);
    let (joined_by, not_searched) =
        (plans.joined_by.clone(), format!("{}.", sentence(&plans.not_searched.join("; ")).trim_end_matches('.')));
    let found = match plans.nearest {
        Some(miss) => view! { <Nothing miss/> }.into_any(),
        None => view! {
            <ol class="recipes">
                {plans.plans.into_iter().map(|plan| view! { <PlanRow plan joined_by=joined_by.clone()/> }).collect_view()}
            </ol>
        }
        .into_any(),
    };
    let count = plans.rejected.len();
    view! {
        {found}
        <details class="more" data-testid="rejected">
            <summary>{format!("Why not the other {count} ways")}</summary>
            <dl class="rejected">{plans.rejected.into_iter().map(|rejected| view! { <Reason rejected/> }).collect_view()}</dl>
        </details>
        <p class="aside"><strong>"Not searched: "</strong> {not_searched}</p>
        <p class="aside">{searched}</p>
        <p class="aside">{rates}</p>
    }
}

#[component]
fn PlanRow(plan: Plan, joined_by: String) -> impl IntoView {
    let planner = Planner::get();
    let name = plan.name.clone();
    let label = format!("take it: {name}");
    let figures = format!("{} at its deepest, {} on each card", number::bytes(plan.process), distance(plan.headroom));
    let takes = format!("{}.", plan::takes(&plan, &joined_by));
    let bound = format!("No step is faster than {}: {}.", plan.bound.in_words(), plan::bound(&plan, &joined_by));
    let costs = plan.costs.iter().map(|cost| (cost.kind.label(), sentence(&cost.words))).collect::<Vec<_>>();
    let now = plan.changes.is_empty();
    view! {
        <li class="recipe">
            <div class="recipe-head">
                <h3>{name}</h3>
                <p class="recipe-figures">{figures}</p>
            </div>
            {if now {
                view! { <p class="recipe-now">"as it is"</p> }.into_any()
            } else {
                view! {
                    <button
                        type="button"
                        class="take"
                        aria-label=label
                        on:click=move |_| {
                            planner.take(plan.scenario());
                            browser::focus("verdict");
                        }
                    >
                        "take it"
                    </button>
                }
                .into_any()
            }}
            <dl class="costs">
                <div><dt>"a step"</dt><dd>{takes}</dd></div>
                <div><dt>"bound"</dt><dd>{bound}</dd></div>
                {costs
                    .into_iter()
                    .map(|(kind, words)| view! { <div><dt>{kind}</dt><dd>{words}</dd></div> })
                    .collect_view()}
            </dl>
        </li>
    }
}

#[component]
fn Reason(rejected: Rejected) -> impl IntoView {
    view! {
        <div>
            <dt>{rejected.name}</dt>
            <dd>{sentence(&rejected.words)}</dd>
        </div>
    }
}

#[component]
fn Nothing(miss: Miss) -> impl IntoView {
    view! {
        <p>
            <strong>"Nothing fits these cards."</strong> " Nearest is " <strong>{miss.name}</strong> ": "
            {number::bytes(miss.process)} ", over by " {number::bytes(miss.over)} "."
        </p>
        <CardList cards=miss.cards title="The smallest cards of which as many hold that:"/>
    }
}
