//! What the machine's own memory holds of a run on several cards.

use leptos::prelude::*;

use super::planner::Planner;

#[component]
pub fn MachineMemory() -> impl IntoView {
    let planner = Planner::get();
    move || {
        let lines = planner.reading.with(|r| r.as_ref().map(|r| r.host.clone()).unwrap_or_default());
        (!lines.is_empty()).then(|| {
            let line = |(what, figure): (String, String)| view! { <li>{what} ": " <strong>{figure}</strong></li> };
            view! { <ul class="machine-memory" data-testid="host">{lines.into_iter().map(line).collect_view()}</ul> }
        })
    }
}
