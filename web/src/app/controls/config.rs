//! A model's own `config.json`, pasted or dropped.

use leptos::prelude::*;
use plimsoll_core::Error;
use plimsoll_core::catalog::search;
use plimsoll_core::measurement::{TEXT, looks_like_record};
use plimsoll_core::scenario::{Change, ModelSource, at};
use plimsoll_web::engine;
use plimsoll_web::wording::sentence;
use wasm_bindgen::prelude::*;

use super::hull::Refused;
use crate::app::exchange::Given;
use crate::app::hulls::choose;
use crate::app::logbook::Logbook;
use crate::app::planner::Planner;
use crate::app::route::Route;
use crate::app::snapshot::Snapped;

#[component]
pub fn ConfigPaste(hulls: Refused) -> impl IntoView {
    let planner = Planner::get();
    let text = RwSignal::new(String::new());
    let refused = RwSignal::new(None::<Error>);
    let open = RwSignal::new(false);

    let read = move |content: String| {
        let outcome = if content.trim().is_empty() {
            Ok(())
        } else {
            match search::called(&content) {
                // The name of a model, or its address on the Hub, where a config is asked for.
                Some(id) => choose(planner, id),
                None => engine::config(&content)
                    .and_then(|config| planner.change(&Change::Model(ModelSource::HuggingFace(config)))),
            }
        };
        refused.set(outcome.err());
        text.set(content);
    };
    let (logbook, route) = (Logbook::get(), Route::get());
    let given: Given = expect_context();
    let text_file = move |file: web_sys::File| {
        let name = file.name();
        // A record of a measurement may be dropped too, and is longer.
        if file.size() > TEXT as f64 {
            open.set(true);
            let problem = format!("{name} is too large to be a config.json");
            refused.set(Some(Error::new(at::model::hf, problem, "drop the config.json of the model's repository")));
            return;
        }
        let done = Closure::once(move |content: JsValue| {
            let content = content.as_string().unwrap_or_default();
            if looks_like_record(&content) || route.compares.get_untracked() {
                let id = logbook.take(&content, &name);
                route.to_compare(|view| {
                    if id.is_some() {
                        view.only.clear();
                        view.selected = id;
                    }
                });
            } else if !given.take(planner, &name, &content) {
                open.set(true);
                read(content);
            }
        });
        let _ = js_sys::Promise::from(JsValue::from(file.text())).then(&done);
        done.forget();
    };
    let snapped: Snapped = expect_context();
    listen_for_drops(move |file| snapped.read(file, move |file| hulls.read(planner, file, text_file)));
    // What the engine itself finds wrong with a pasted model is said here too.
    let error = move || {
        let pasted = planner.below.scenario.with(|s| matches!(s.model.source, ModelSource::HuggingFace(_)));
        let shown = pasted && !text.with(String::is_empty);
        refused.get().or_else(|| planner.fault.get().filter(|f| shown && f.key.starts_with("model")))
    };

    // A config that is refused: what stands in the verdict is the model before it.
    Effect::new(move || planner.holds("config-paste", "config.json", refused.with(Option::is_none)));
    // Another model was chosen meanwhile: the config in the field is no longer asked about.
    let source = Memo::new(move |_| planner.below.scenario.with(|s| s.model.source.clone()));
    Effect::new(move |before: Option<ModelSource>| {
        let now = source.get();
        if before.is_some_and(|before| before != now) && refused.with_untracked(Option::is_some) {
            refused.set(None);
        }
        now
    });

    view! {
        <details class="fold" prop:open=move || open.get()>
            <summary>"config.json"</summary>
            <div class="field" class:has-error=move || error().is_some()>
                <label for="config-paste">"A model's config.json, pasted here or dropped anywhere on the page"</label>
                <textarea
                    id="config-paste"
                    data-testid="config-paste"
                    rows="7"
                    spellcheck="false"
                    autocomplete="off"
                    aria-describedby="config-help config-error"
                    placeholder="{ \"model_type\": \"llama\", \"hidden_size\": 2048, … }"
                    prop:value=move || text.get()
                    on:input:target=move |event| read(event.target().value())
                ></textarea>
                <p class="help" id="config-help">
                    "Taken as it is from a Hugging Face repository: "
                    {engine::model_types()} "."
                </p>
                <p class="error" id="config-error" role="alert" data-testid="config-error">
                    {move || {
                        error()
                            .map(|fault| {
                                view! {
                                    <code>{fault.key}</code>
                                    ": "
                                    {fault.problem}
                                    ". "
                                    {sentence(&fault.hint)}
                                }
                            })
                    }}
                </p>
            </div>
        </details>
    }
}

/// A file dropped anywhere on the page is read; without this the browser would leave the page for it.
fn listen_for_drops(dropped: impl Fn(web_sys::File) + 'static) {
    let over = Closure::<dyn FnMut(web_sys::DragEvent)>::new(|event: web_sys::DragEvent| event.prevent_default());
    let drop = Closure::<dyn FnMut(web_sys::DragEvent)>::new(move |event: web_sys::DragEvent| {
        let file = event.data_transfer().and_then(|d| d.files()).and_then(|files| files.get(0));
        if let Some(file) = file {
            event.prevent_default();
            dropped(file);
        }
    });
    if let Some(window) = web_sys::window() {
        let _ = window.add_event_listener_with_callback("dragover", over.as_ref().unchecked_ref());
        let _ = window.add_event_listener_with_callback("drop", drop.as_ref().unchecked_ref());
    }
    over.forget();
    drop.forget();
}
