//! The families of our own: small networks described by a few keys.

use leptos::prelude::*;
use plimsoll_core::catalog::families::{self, FamilyKey, FamilyKeyKind};
use plimsoll_core::scenario::{Change, ModelSource, Word};
use plimsoll_web::wording::sentence;
use plimsoll_web::{engine, field};
use serde_json::{Map, Value};

use crate::app::planner::{Planner, in_full};
use crate::app::widgets::{Segments, Switch, TextField};

/// Hugging Face's architecture, or one of the families.
#[component]
pub fn FamilyChoice() -> impl IntoView {
    let planner = Planner::get();
    // The Hugging Face model one comes from is the one one goes back to.
    let last = StoredValue::new(engine::opening().model.source);
    let now = move || {
        planner.below.scenario.with(|s| match &s.model.source {
            ModelSource::Family { name, .. } => name.clone(),
            _ => String::new(),
        })
    };
    let choose = move |name: &'static str| {
        let current = planner.scenario.with_untracked(|s| s.model.source.clone());
        if !matches!(current, ModelSource::Family { .. }) {
            last.set_value(current);
        }
        let source = if name.is_empty() {
            last.get_value()
        } else {
            ModelSource::Family { name: name.to_owned(), keys: Map::new() }
        };
        if let Err(fault) = planner.change(&Change::Model(source)) {
            planner.fault.set(Some(fault));
        }
    };
    let offers = std::iter::once(("", "transformer")).chain(families::OWN.iter().map(|f| (f.name, f.name)));
    view! {
        <fieldset class="field segments" data-testid="family">
            <legend>"Architecture"</legend>
            <div class="strip">
                {offers
                    .map(|(name, label)| {
                        view! {
                            <label class="segment-choice">
                                <input
                                    type="radio"
                                    name="family"
                                    value=name
                                    prop:checked=move || now() == name
                                    on:change=move |_| choose(name)
                                />
                                <span>{label}</span>
                            </label>
                        }
                    })
                    .collect_view()}
            </div>
            <p class="help">
                {move || {
                    families::own(&now())
                        .map_or_else(
                            || "The sizes of the model above; changing one makes it your own.".to_owned(),
                            |family| sentence(family.about()),
                        )
                }}
            </p>
        </fieldset>
    }
}

/// The keys of a family.
#[component]
pub fn FamilySizes(family: String) -> impl IntoView {
    families::own(&family).map(|family| family.keys().iter().map(|key| view! { <KeyField key/> }).collect_view())
}

#[component]
fn KeyField(key: &'static FamilyKey) -> impl IntoView {
    let planner = Planner::get();
    let given = move || {
        planner.below.scenario.with(|s| match &s.model.source {
            ModelSource::Family { keys, .. } => keys.get(key.name).cloned(),
            _ => None,
        })
    };
    let put = move |value: Value| {
        let source = planner.scenario.with_untracked(|s| s.model.source.clone());
        let ModelSource::Family { name, mut keys } = source else {
            return Ok(());
        };
        keys.insert(key.name.to_owned(), value);
        planner.change(&Change::Model(ModelSource::Family { name, keys }))
    };
    let typed = move |value: Result<Value, String>| put(value?).map_err(|fault| in_full(&fault));
    let fault = planner.fault_at(format!("model.{}", key.name));
    match key.kind {
        FamilyKeyKind::Count { default, most } => {
            let value = Signal::derive(move || given().and_then(|v| v.as_u64()).unwrap_or(default).to_string());
            let set = Callback::new(move |text: String| typed(field::whole(&text, 1, most).map(Value::from)));
            view! { <TextField id=key.name label=key.name help=key.about value fault set/> }.into_any()
        }
        FamilyKeyKind::Fraction { default } => {
            let value = Signal::derive(move || given().and_then(|v| v.as_f64()).unwrap_or(default).to_string());
            let set = Callback::new(move |text: String| typed(field::fraction(&text).map(Value::from)));
            view! { <TextField id=key.name label=key.name help=key.about value fault set/> }.into_any()
        }
        FamilyKeyKind::Flag { default } => {
            let value = Signal::derive(move || given().and_then(|v| v.as_bool()).unwrap_or(default));
            let set = Callback::new(move |on: bool| put(on.into()));
            view! { <Switch id=key.name label=key.name help=key.about value set/> }.into_any()
        }
        FamilyKeyKind::Word { default, words } => {
            let word = |word: &&'static str| Word { key: word, label: word, about: key.about };
            let words: Vec<Word> = words.iter().map(word).collect();
            let value = Signal::derive(move || {
                given().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_else(|| default.to_owned())
            });
            let set = Callback::new(move |word: &'static str| put(word.into()));
            view! { <Segments name=key.name label=key.name most=words.len() words=Signal::stored(words) value set/> }
                .into_any()
        }
    }
}
