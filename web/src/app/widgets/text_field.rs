//! A short text that is read as it is typed.

use leptos::prelude::*;

use crate::app::planner::Planner;

/// `set` says what is wrong with a text it refuses; the text stays. `fault` is what was found wrong with it later.
#[component]
pub fn TextField(
    #[prop(into)] id: String,
    #[prop(into)] label: String,
    #[prop(into)] help: String,
    #[prop(into)] value: Signal<String>,
    #[prop(into, optional)] placeholder: Signal<String>,
    #[prop(into, optional)] fault: Signal<Option<String>>,
    set: Callback<String, Result<(), String>>,
) -> impl IntoView {
    let draft = RwSignal::new(None::<String>);
    let error = RwSignal::new(None::<String>);
    let wrong = move || error.get().or_else(|| fault.get());
    let planner = Planner::get();
    let (own, name) = (id.clone(), label.clone());
    Effect::new(move || planner.holds(&own, &name, error.with(Option::is_none)));
    // What was typed in vain gives way to a value that came from elsewhere.
    Effect::new(move |before: Option<String>| {
        let now = value.get();
        if before.is_some_and(|before| before != now) && error.with_untracked(Option::is_some) {
            draft.set(None);
            error.set(None);
        }
        now
    });
    let (own, name) = (id.clone(), label.clone());
    on_cleanup(move || planner.holds(&own, &name, true));
    let help_id = format!("{id}-help");
    let error_id = format!("{id}-error");
    view! {
        <div class="field" class:has-error=move || wrong().is_some()>
            <label for=id.clone()>{label}</label>
            <div class="number-box">
                <input
                    id=id.clone()
                    data-testid=id
                    type="text"
                    autocomplete="off"
                    spellcheck="false"
                    placeholder=move || placeholder.get()
                    aria-describedby=format!("{help_id} {error_id}")
                    aria-invalid=move || wrong().is_some().to_string()
                    prop:value=move || draft.get().unwrap_or_else(|| value.get())
                    on:input:target=move |event| {
                        let text = event.target().value();
                        error.set(set.run(text.clone()).err());
                        draft.set(Some(text));
                    }
                    on:blur=move |_| {
                        if error.with_untracked(Option::is_none) {
                            draft.set(None);
                        }
                    }
                />
            </div>
            <p class="help" id=help_id>{help}</p>
            <p class="error" id=error_id role="alert">{wrong}</p>
        </div>
    }
}
