//! Yes or no.

use leptos::prelude::*;

#[component]
pub fn Switch(
    id: &'static str,
    label: &'static str,
    help: &'static str,
    #[prop(into)] value: Signal<bool>,
    #[prop(into, optional)] disabled: Signal<bool>,
    set: Callback<bool>,
) -> impl IntoView {
    let help_id = format!("{id}-help");
    view! {
        <div class="field switch-field">
            <input
                id=id
                data-testid=id
                class="switch"
                type="checkbox"
                role="switch"
                aria-describedby=help_id.clone()
                prop:checked=move || value.get()
                prop:disabled=move || disabled.get()
                on:change:target=move |event| set.run(event.target().checked())
            />
            <label for=id>{label}</label>
            <p class="help" id=help_id>{help}</p>
        </div>
    }
}
