//! What is alive at the timeline's cursor.

use leptos::prelude::*;
use plimsoll_core::Bytes;
use plimsoll_core::summary::Kind;
use plimsoll_web::number;

use super::holdings::HoldingRow;
use super::planner::Planner;

/// How many holdings are listed beside the timeline.
const LISTED: usize = 6;

#[component]
pub fn Alive() -> impl IntoView {
    let planner = Planner::get();
    let point = move || planner.shown(|_, points, _, cursor| points.get(cursor).cloned()).flatten();
    view! {
        <div class="alive">
            <div class="alive-kinds">
                {move || {
                    let point = point();
                    let total = point.as_ref().map_or(Bytes::ZERO, |p| p.total());
                    Kind::ALL
                        .into_iter()
                        .take(Kind::LEDGER)
                        .enumerate()
                        // Only where something is generated is there a cache.
                        .filter(|(i, kind)| {
                            let there = point.as_ref().and_then(|p| p.live.get(*i)).is_some_and(|bytes| *bytes > 0);
                            *kind != Kind::KvCache || there
                        })
                        .map(|(i, kind)| {
                            let bytes = point.as_ref().and_then(|p| p.live.get(i)).copied().unwrap_or(0);
                            let bytes = Bytes::new(bytes);
                            view! {
                                <div class="alive-kind" class:is-empty=bytes == Bytes::ZERO>
                                    <span class=format!("swatch {}", kind.class())></span>
                                    <span class="alive-name">{kind.label()}</span>
                                    <span class="alive-bytes">{number::gib(bytes)}</span>
                                    <span class="alive-share">{number::share(bytes, total)}</span>
                                </div>
                            }
                        })
                        .collect_view()
                }}
            </div>
            <ul class="alive-list">
                {move || {
                    planner.alive.get().into_iter().take(LISTED).map(|held| view! { <HoldingRow held/> }).collect_view()
                }}
            </ul>
        </div>
    }
}
