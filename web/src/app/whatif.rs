//! The what-if table: each lever, what it saves and what it costs.

use leptos::prelude::*;
use plimsoll_core::Bytes;
use plimsoll_web::number;

use super::browser;
use super::planner::{NeighbourPeak, Planner};

#[component]
pub fn WhatIf() -> impl IntoView {
    let planner = Planner::get();
    view! {
        <section class="section" aria-labelledby="whatif-title">
            <header class="section-head">
                <h2 id="whatif-title" tabindex="-1">"What if"</h2>
                <p>"The same run with one thing changed; what saves most first."</p>
            </header>
            <table class="figures-table whatif">
                <caption class="unseen">"Levers, with the process peak each leads to"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Lever"</th>
                        <th scope="col" class="num">"Peak, GiB"</th>
                        <th scope="col" class="num">"Change"</th>
                        <th scope="col">"Verdict"</th>
                        <th scope="col"><span class="unseen">"Apply"</span></th>
                    </tr>
                </thead>
                <tbody>
                    {move || by_peak(planner.rungs.get()).into_iter().map(|rung| view! { <LeverRow rung/> }).collect_view()}
                </tbody>
            </table>
        </section>
    }
}

/// What saves most comes first; what is not known yet, or cannot be run, last.
fn by_peak(mut rungs: Vec<NeighbourPeak>) -> Vec<NeighbourPeak> {
    rungs.sort_by_key(|rung| match &rung.peak {
        Some(Ok(peak)) => (false, peak.process),
        _ => (true, Bytes::ZERO),
    });
    rungs
}

#[component]
fn LeverRow(rung: NeighbourPeak) -> impl IntoView {
    let planner = Planner::get();
    let NeighbourPeak { neighbour, peak } = rung;
    let process = planner.reading.with_untracked(|r| r.as_ref().map(|r| r.process)).unwrap_or_default();
    let (value, change, verdict, deep) = match &peak {
        None => ("–".to_owned(), String::new(), "", false),
        Some(Err(_)) => ("–".to_owned(), String::new(), "Not estimated", false),
        Some(Ok(peak)) => {
            let difference = i64::try_from(peak.process.get()).unwrap_or(i64::MAX)
                - i64::try_from(process.get()).unwrap_or(i64::MAX);
            let verdict = peak.standing.label();
            (number::gib(peak.process), number::signed(difference), verdict, peak.standing.below())
        }
    };
    let usable = matches!(peak, Some(Ok(_)));
    let missing = peak.is_none();
    view! {
        <tr class:is-pending=move || planner.awaits(missing)>
            <th scope="row">
                <span>{neighbour.label} <small>{neighbour.cost}</small></span>
            </th>
            <td class="num">{value}</td>
            <td class="num">{change}</td>
            <td class="verdict-cell" class:is-below=deep>{verdict}</td>
            <td class="act">
                <button
                    type="button"
                    class="take"
                    disabled=!usable
                    aria-label=format!("Apply {}", neighbour.label)
                    on:click=move |_| {
                        planner.climb(neighbour);
                        // The row is gone with its button: the next Tab starts at the table again, not at the page's top.
                        browser::focus("whatif-title");
                    }
                >
                    "apply"
                </button>
            </td>
        </tr>
    }
}
