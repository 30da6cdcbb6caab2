//! Bringing a record along: a file that never leaves the browser.

use leptos::prelude::*;
use plimsoll_core::measurement::TEXT;
use wasm_bindgen::prelude::*;

use crate::app::logbook::Logbook;
use crate::app::route::Route;

#[component]
pub fn Drop() -> impl IntoView {
    let logbook = Logbook::get();
    let route = Route::get();
    let chosen = move |event: web_sys::Event| {
        let input = event.target().and_then(|t| t.dyn_into::<web_sys::HtmlInputElement>().ok());
        let Some(input) = input else { return };
        let files = input.files();
        let files = (0..files.as_ref().map_or(0, web_sys::FileList::length))
            .filter_map(|i| files.as_ref().and_then(|f| f.get(i)));
        for file in files {
            open(logbook, route, file);
        }
        // So that the same file can be chosen once more.
        input.set_value("");
    };
    view! {
        <div class="compare-drop">
            <label class="tool" for="record-file">"Open a record"</label>
            <input
                class="unseen"
                id="record-file"
                data-testid="record-file"
                type="file"
                multiple
                accept=".json,application/json"
                on:change=chosen
            />
            <p class="help">
                "Or drop a record of plimsoll probe anywhere on the page. It stays in this browser, and is here again at the \
                 next visit."
            </p>
            <button
                class="tool"
                type="button"
                data-testid="forget-records"
                hidden=move || logbook.kept.with(Vec::is_empty)
                on:click=move |_| {
                    logbook.forget();
                    route.look(|view| {
                        view.only.clear();
                        view.selected = None;
                    });
                    crate::app::browser::focus("record-file");
                }
            >
                {move || match logbook.kept.with(Vec::len) {
                    1 => "Forget the record opened here".to_owned(),
                    n => format!("Forget the {n} records opened here"),
                }}
            </button>
            <p class="error" role="alert" data-testid="record-refused">
                {move || logbook.refused.get()}
            </p>
        </div>
    }
}

/// Reads a file and looks at it.
fn open(logbook: Logbook, route: Route, file: web_sys::File) {
    let name = file.name();
    if file.size() > TEXT as f64 {
        logbook.refused.set(Some(format!("{name} is too large to be a record: give what plimsoll probe wrote.")));
        return;
    }
    let done = Closure::once(move |content: JsValue| {
        if let Some(id) = logbook.take(&content.as_string().unwrap_or_default(), &name) {
            route.look(|view| {
                view.only.clear();
                view.selected = Some(id);
            });
        }
    });
    let _ = js_sys::Promise::from(JsValue::from(file.text())).then(&done);
    done.forget();
}
