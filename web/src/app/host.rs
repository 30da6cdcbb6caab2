//! What a run on several cards takes besides the card that is drawn: other cards, where they do other things, and the machine's own
//! memory.

use leptos::prelude::*;

use super::planner::Planner;
use plimsoll_web::reading::Reading;

#[component]
pub fn OtherCards() -> impl IntoView {
    listed("roles", |reading| reading.roles.clone())
}

#[component]
pub fn MachineMemory() -> impl IntoView {
    listed("host", |reading| reading.host.clone())
}

/// Lines of what and how much.
fn listed(id: &'static str, lines: fn(&Reading) -> Vec<(String, String)>) -> impl IntoView {
    let planner = Planner::get();
    move || {
        let lines = planner.below.reading.with(|r| r.as_deref().map(lines).unwrap_or_default());
        (!lines.is_empty()).then(|| {
            let line = |(what, figure): (String, String)| view! { <li>{what} ": " <strong>{figure}</strong></li> };
            view! { <ul class="machine-memory" data-testid=id>{lines.into_iter().map(line).collect_view()}</ul> }
        })
    }
}
