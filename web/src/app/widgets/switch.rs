//! Yes or no.

use leptos::prelude::*;
use plimsoll_core::Result;

use crate::app::planner::in_full;

/// Under it stands what it does, and why it cannot be.
#[component]
pub fn Switch(
    #[prop(into)] id: String,
    label: &'static str,
    #[prop(into)] help: String,
    #[prop(into)] value: Signal<bool>,
    #[prop(into, optional)] disabled: Signal<bool>,
    set: Callback<bool, Result<()>>,
) -> impl IntoView {
    let help_id = format!("{id}-help");
    let refused = RwSignal::new(None::<String>);
    view! {
        <div class="field switch-field">
            <input
                id=id.clone()
                data-testid=id.clone()
                class="switch"
                type="checkbox"
                role="switch"
                aria-describedby=help_id.clone()
                prop:checked=move || value.get()
                prop:disabled=move || disabled.get()
                on:change:target=move |event| {
                    refused.set(set.run(event.target().checked()).err().map(|fault| in_full(&fault)));
                }
            />
            <label for=id>{label}</label>
            <p class="help" id=help_id>{help}</p>
            <p class="error" role="alert">{move || refused.get()}</p>
        </div>
    }
}
