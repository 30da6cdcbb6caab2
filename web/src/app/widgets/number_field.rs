//! A whole number: typed, stepped, or slid.

use leptos::prelude::*;
use plimsoll_core::Result;
use plimsoll_web::field;

use crate::app::planner::{Planner, in_full};

/// `slide` is where the slider starts and ends; without it there is none. What is typed stays as typed until the
/// field is left. `fault` is what was found wrong with it later.
#[component]
pub fn NumberField(
    #[prop(into)] id: String,
    label: &'static str,
    #[prop(into)] help: Signal<String>,
    #[prop(into)] value: Signal<u64>,
    #[prop(into)] most: Signal<u64>,
    #[prop(default = 1)] least: u64,
    #[prop(optional)] slide: Option<(u64, u64)>,
    #[prop(into, optional)] fault: Signal<Option<String>>,
    set: Callback<u64, Result<()>>,
) -> impl IntoView {
    let draft = RwSignal::new(None::<String>);
    let error = RwSignal::new(None::<String>);
    let take = move |n: u64| match set.run(n) {
        Ok(()) => error.set(None),
        Err(fault) => error.set(Some(in_full(&fault))),
    };
    let typed = move |text: String| {
        match field::whole(&text, least, most.get_untracked()) {
            Ok(n) => take(n),
            Err(problem) => error.set(Some(problem)),
        }
        draft.set(Some(text));
    };
    let nudge = move |up: bool| {
        let now = value.get_untracked();
        let next = if up { now.saturating_add(1) } else { now.saturating_sub(1) };
        draft.set(None);
        take(next.clamp(least, most.get_untracked()));
    };
    let wrong = move || error.get().or_else(|| fault.get());
    let planner = Planner::get();
    let own = id.clone();
    Effect::new(move || planner.holds(&own, label, error.with(Option::is_none)));
    // What was typed in vain gives way to a value that came from elsewhere.
    Effect::new(move |before: Option<u64>| {
        let now = value.get();
        if before.is_some_and(|before| before != now) && error.with_untracked(Option::is_some) {
            draft.set(None);
            error.set(None);
        }
        now
    });
    let own = id.clone();
    on_cleanup(move || planner.holds(&own, label, true));
    let help_id = format!("{id}-help");
    let error_id = format!("{id}-error");
    let slider = slide.map(|(from, to)| {
        let stops = StoredValue::new(field::stops(from, to));
        let last = stops.with_value(|s| s.len().saturating_sub(1));
        view! {
            <input
                class="slider"
                type="range"
                min="0"
                max=last.to_string()
                step="1"
                aria-label=format!("{label}, slider")
                aria-valuetext=move || value.get().to_string()
                prop:value=move || stops.with_value(|s| field::nearest_stop(s, value.get())).to_string()
                on:input:target=move |event| {
                    let stop = event.target().value().parse::<usize>().unwrap_or(0);
                    if let Some(n) = stops.with_value(|s| s.get(stop).copied()) {
                        draft.set(None);
                        take(n.min(most.get_untracked()));
                    }
                }
            />
        }
    });
    view! {
        <div class="field" class:has-slider=slide.is_some() class:has-error=move || wrong().is_some()>
            <label for=id.clone()>{label}</label>
            <div class="number-box">
                <input
                    id=id.clone()
                    data-testid=id
                    type="text"
                    inputmode="numeric"
                    autocomplete="off"
                    aria-describedby=format!("{help_id} {error_id}")
                    aria-invalid=move || wrong().is_some().to_string()
                    prop:value=move || draft.get().unwrap_or_else(|| value.get().to_string())
                    on:input:target=move |event| typed(event.target().value())
                    on:blur=move |_| {
                        if error.with_untracked(Option::is_none) {
                            draft.set(None);
                        }
                    }
                    on:keydown=move |event| match event.key().as_str() {
                        "ArrowUp" => {
                            event.prevent_default();
                            nudge(true);
                        }
                        "ArrowDown" => {
                            event.prevent_default();
                            nudge(false);
                        }
                        _ => {}
                    }
                />
            </div>
            {slider}
            <p class="help" id=help_id>{move || help.get()}</p>
            <p class="error" id=error_id role="alert">{wrong}</p>
        </div>
    }
}
