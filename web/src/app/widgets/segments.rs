//! One of a few: radio buttons set as a strip.

use leptos::prelude::*;
use plimsoll_web::choices::Choice;

/// The line under the strip says what the chosen value means.
#[component]
pub fn Segments<C: Choice>(
    name: &'static str,
    label: &'static str,
    #[prop(into)] value: Signal<C>,
    set: Callback<C>,
) -> impl IntoView {
    view! {
        <fieldset class="field segments" data-testid=name>
            <legend>{label}</legend>
            <div class="strip">
                {C::all()
                    .iter()
                    .map(|&choice| {
                        view! {
                            <label class="segment-choice">
                                <input
                                    type="radio"
                                    name=name
                                    value=choice.key()
                                    prop:checked=move || value.get() == choice
                                    on:change=move |_| set.run(choice)
                                />
                                <span>{choice.label()}</span>
                            </label>
                        }
                    })
                    .collect_view()}
            </div>
            <p class="help">{move || value.get().about()}</p>
        </fieldset>
    }
}
