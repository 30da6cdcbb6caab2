//! One of a few words: radio buttons set as a strip, or a list where there are many.

use leptos::prelude::*;
use plimsoll_core::Result;
use plimsoll_core::scenario::Word;

use crate::app::planner::in_full;

/// So many words stand in a strip; more are a list that opens.
const STRIP: usize = 5;

/// The line under it says what the chosen word means; why the last one that was asked for cannot be, stands there always.
#[component]
pub fn Segments(
    #[prop(into)] name: String,
    label: &'static str,
    #[prop(into)] words: Signal<Vec<Word>>,
    #[prop(into)] value: Signal<String>,
    /// How many words there are at most, whatever the scenario leaves of them.
    most: usize,
    set: Callback<&'static str, Result<()>>,
) -> impl IntoView {
    let refused = RwSignal::new(None::<String>);
    let about = move || {
        let chosen = value.get();
        words.with(|words| words.iter().find(|word| word.key == chosen).map_or("", |word| word.about))
    };
    let choose = Callback::new(move |word: &'static str| refused.set(set.run(word).err().map(|fault| in_full(&fault))));
    let inner = match most > STRIP {
        true => view! { <List name=name.clone() label words value choose/> }.into_any(),
        false => view! { <Strip name=name.clone() label words value choose/> }.into_any(),
    };
    view! {
        <div class="field segments" data-testid=name>
            {inner}
            <p class="help">{about}</p>
            <p class="error" role="alert">{move || refused.get()}</p>
        </div>
    }
}

#[component]
fn Strip(
    name: String,
    label: &'static str,
    words: Signal<Vec<Word>>,
    value: Signal<String>,
    choose: Callback<&'static str>,
) -> impl IntoView {
    view! {
        <fieldset class="words">
            <legend>{label}</legend>
            <div class="strip">
                // Keyed: a button that stays keeps the keyboard's focus.
                <For each=move || words.get() key=|word| word.key let:word>
                    <label class="segment-choice">
                        <input
                            type="radio"
                            name=name.clone()
                            value=word.key
                            prop:checked=move || value.get() == word.key
                            on:change=move |_| choose.run(word.key)
                        />
                        <span>{word.label}</span>
                    </label>
                </For>
            </div>
        </fieldset>
    }
}

#[component]
fn List(
    name: String,
    label: &'static str,
    words: Signal<Vec<Word>>,
    value: Signal<String>,
    choose: Callback<&'static str>,
) -> impl IntoView {
    let chosen = move |list: web_sys::HtmlSelectElement| {
        let key = list.value();
        if let Some(word) = words.with_untracked(|words| words.iter().find(|word| word.key == key).copied()) {
            choose.run(word.key);
        }
        // What was refused is not what holds.
        list.set_value(&value.get_untracked());
    };
    view! {
        <div class="words">
            <label for=name.clone()>{label}</label>
            <select id=name.clone() name=name on:change:target=move |event| chosen(event.target())>
                <For each=move || words.get() key=|word| word.key let:word>
                    <option value=word.key prop:selected=move || value.get() == word.key>{word.label}</option>
                </For>
            </select>
        </div>
    }
}
