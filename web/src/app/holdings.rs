//! Who holds what: groups of equal storages.

use leptos::prelude::*;
use plimsoll_web::reading::Held;
use plimsoll_web::{number, wording};

use super::planner::Planner;

/// How many groups fill the list under the breakdown.
const LISTED: usize = 14;

/// One group.
#[component]
pub fn HoldingRow(held: Held) -> impl IntoView {
    let (place, op) = wording::origin(&held);
    let times = (held.count > 1).then(|| format!("{} × ", number::grouped(held.count)));
    view! {
        <li class="held">
            <span class=format!("swatch {}", held.kind.class())></span>
            <span class="held-place">{place}</span>
            <span class="held-bytes">{number::bytes(held.bytes)}</span>
            <span class="held-form">{held.kind.label()} " · " {times} {held.form.clone()} {op.map(|op| format!(" · {op}"))}</span>
        </li>
    }
}

/// What fills the peak.
#[component]
pub fn Holdings() -> impl IntoView {
    let planner = Planner::get();
    view! {
        <div class="holdings">
            <h3>"Who holds it"</h3>
            <ol class="held-list">
                {move || {
                    planner
                        .reading
                        .with(|r| r.as_ref().map(|r| r.holdings.clone()).unwrap_or_default())
                        .into_iter()
                        .take(LISTED)
                        .map(|held| view! { <HoldingRow held/> })
                        .collect_view()
                }}
            </ol>
        </div>
    }
}
