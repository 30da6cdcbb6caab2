//! The table behind the timeline.

use leptos::prelude::*;
use plimsoll_web::number;

use super::planner::Planner;

/// Most rows shown: with many micro-batches the middle ones say nothing new.
const ROWS: usize = 60;

#[component]
pub fn PhasesTable() -> impl IntoView {
    let planner = Planner::get();
    let open = RwSignal::new(false);
    view! {
        <details class="more" on:toggle=move |_| open.update(|o| *o = !*o)>
            <summary>"Phases as a table"</summary>
            <table class="figures-table phases">
                <caption class="unseen">"Live memory by phase, in GiB"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Phase"</th>
                        <th scope="col" class="num">"Step"</th>
                        <th scope="col" class="num">"Micro-batch"</th>
                        <th scope="col" class="num">"Peak, GiB"</th>
                        <th scope="col" class="num">"At its end"</th>
                        <th scope="col" class="num">"Reserved"</th>
                    </tr>
                </thead>
                <tbody>
                    {move || {
                        // Closed, it is not worth its time on every keystroke.
                        let rows = if open.get() {
                            planner.below.reading.with(|r| r.as_ref().map(|r| r.phases.clone()).unwrap_or_default())
                        } else {
                            Vec::new()
                        };
                        let skipped = rows.len().saturating_sub(ROWS);
                        let dash = || "–".to_owned();
                        let mut shown: Vec<_> = rows
                            .into_iter()
                            .enumerate()
                            .filter(|(i, _)| skipped == 0 || *i < ROWS / 2 || *i >= ROWS / 2 + skipped)
                            .map(|(_, row)| row)
                            .collect();
                        shown.shrink_to_fit();
                        view! {
                            {shown
                                .into_iter()
                                .map(|row| {
                                    view! {
                                        <tr>
                                            <th scope="row">{row.name}</th>
                                            <td class="num">{row.step.map_or_else(dash, |n| n.to_string())}</td>
                                            <td class="num">
                                                {row.micro_batch.map_or_else(dash, number::grouped)}
                                            </td>
                                            <td class="num">{number::gib(row.peak)}</td>
                                            <td class="num">{number::gib(row.end)}</td>
                                            <td class="num">{number::gib(row.end_reserved)}</td>
                                        </tr>
                                    }
                                })
                                .collect_view()}
                            {(skipped > 0)
                                .then(|| {
                                    view! {
                                        <tr>
                                            <td colspan="6">
                                                {format!("{} micro-batch phases in the middle are left out.", number::grouped(skipped as u64))}
                                            </td>
                                        </tr>
                                    }
                                })}
                        }
                    }}
                </tbody>
            </table>
        </details>
    }
}
