//! One of a few: radio buttons set as a strip.

use leptos::prelude::*;
use plimsoll_core::Result;
use plimsoll_core::scenario::Word;

use crate::app::planner::in_full;

/// The line under the strip says what the chosen word means, or why the last one that was asked for cannot be.
#[component]
pub fn Segments(
    #[prop(into)] name: String,
    label: &'static str,
    #[prop(into)] words: Signal<Vec<Word>>,
    #[prop(into)] value: Signal<String>,
    set: Callback<&'static str, Result<()>>,
) -> impl IntoView {
    let refused = RwSignal::new(None::<String>);
    let about = move || {
        let chosen = value.get();
        let word = words.with(|words| words.iter().find(|word| word.key == chosen).map(|word| word.about));
        refused.get().unwrap_or_else(|| word.unwrap_or_default().to_owned())
    };
    let group = name.clone();
    view! {
        <fieldset class="field segments" data-testid=name>
            <legend>{label}</legend>
            <div class="strip">
                // Keyed: a button that stays keeps the keyboard's focus.
                <For each=move || words.get() key=|word| word.key let:word>
                    <label class="segment-choice">
                        <input
                            type="radio"
                            name=group.clone()
                            value=word.key
                            prop:checked=move || value.get() == word.key
                            on:change=move |_| refused.set(set.run(word.key).err().map(|fault| in_full(&fault)))
                        />
                        <span>{word.label}</span>
                    </label>
                </For>
            </div>
            <p class="help">{about}</p>
        </fieldset>
    }
}
