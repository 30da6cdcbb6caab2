//! What fills the peak: a bar, and the table behind it.

use leptos::prelude::*;
use plimsoll_core::Bytes;
use plimsoll_web::{breakdown, number};

use super::holdings::Holdings;
use super::planner::Planner;

#[component]
pub fn BreakdownSection() -> impl IntoView {
    let planner = Planner::get();
    view! {
        <section class="section" aria-labelledby="breakdown-title">
            <header class="section-head">
                <h2 id="breakdown-title">"What fills the peak"</h2>
                <p>"Every byte has an owner; together they are the process peak."</p>
            </header>
            <svg class="bar-chart" width="100%" height="34" aria-hidden="true">
                {move || {
                    planner
                        .reading
                        .with(|r| r.as_ref().map(|r| breakdown::bar(r)).unwrap_or_default())
                        .into_iter()
                        .map(|piece| {
                            view! {
                                <rect
                                    class=format!("segment {}", piece.kind.class())
                                    x=format!("{:.3}%", piece.x)
                                    width=format!("{:.3}%", piece.width)
                                    y="0"
                                    height="34"
                                />
                            }
                        })
                        .collect_view()
                }}
            </svg>
            <div class="breakdown">
                <table class="figures-table" data-testid="breakdown-table">
                    <caption class="unseen">"What the process peak is made of"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"For"</th>
                            <th scope="col" class="num">"GiB"</th>
                            <th scope="col" class="num">"Share"</th>
                        </tr>
                    </thead>
                    <tbody>
                        {move || {
                            let reading = planner.below.reading.get();
                            let parts = reading.as_ref().map(|r| r.parts.clone()).unwrap_or_default();
                            let whole = reading.as_ref().map_or(Bytes::ZERO, |r| r.process);
                            parts
                                .into_iter()
                                .map(|part| {
                                    view! {
                                        <tr
                                            class:is-empty=part.bytes == Bytes::ZERO
                                            data-bytes=part.bytes.get().to_string()
                                        >
                                            <th scope="row">
                                                <span class="kind-cell">
                                                    <span class=format!("swatch {}", part.kind.class())></span>
                                                    <span>
                                                        {part.kind.label()}
                                                        <small>{part.kind.note()}</small>
                                                    </span>
                                                </span>
                                            </th>
                                            <td class="num">{number::gib(part.bytes)}</td>
                                            <td class="num">{number::share(part.bytes, whole)}</td>
                                        </tr>
                                    }
                                })
                                .collect_view()
                        }}
                    </tbody>
                    <tfoot>
                        <tr data-bytes=move || {
                            planner.below.reading.with(|r| r.as_ref().map(|r| r.process.get().to_string()))
                        }>
                            <th scope="row">"Process peak"</th>
                            <td class="num">
                                {move || planner.below.reading.with(|r| r.as_ref().map(|r| number::gib(r.process)))}
                            </td>
                            <td class="num">"100 %"</td>
                        </tr>
                    </tfoot>
                </table>
                <Holdings/>
            </div>
        </section>
    }
}
