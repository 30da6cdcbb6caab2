//! Taking the scenario elsewhere: its link, its command, its JSON.

use leptos::prelude::*;
use plimsoll_web::engine;
use wasm_bindgen::prelude::*;

use super::planner::Planner;
use super::{address, browser};

/// How long a button says "Copied", in ms.
const THANKS: i32 = 1800;

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Link,
    Command,
    Json,
}

impl Form {
    const ALL: [Self; 3] = [Self::Link, Self::Command, Self::Json];

    const fn label(self) -> &'static str {
        match self {
            Self::Link => "Copy link",
            Self::Command => "CLI",
            Self::Json => "JSON",
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Self::Link => "Copy link to this scenario",
            Self::Command => "CLI: copy the command for a terminal",
            Self::Json => "JSON: copy the scenario",
        }
    }

    const fn hook(self) -> &'static str {
        match self {
            Self::Link => "copy-link",
            Self::Command => "copy-command",
            Self::Json => "copy-json",
        }
    }

    fn text(self, planner: Planner) -> String {
        planner.scenario.with_untracked(|scenario| match self {
            Self::Link => address::link(scenario),
            Self::Command => engine::command(scenario),
            Self::Json => serde_json::to_string_pretty(&scenario.to_value()).unwrap_or_default(),
        })
    }
}

#[component]
pub fn Handoff() -> impl IntoView {
    let planner = Planner::get();
    let done = RwSignal::new(None::<Form>);
    // Where the clipboard is out of reach the text is shown, selected.
    let shown = RwSignal::new(None::<String>);

    let copy = move |form: Form| {
        let text = form.text(planner);
        browser::copy(&text.clone(), move |copied| {
            if copied {
                done.set(Some(form));
                browser::after(THANKS, move || done.set(None));
            } else {
                shown.set(Some(text));
                browser::after(0, select_shown);
            }
        });
    };

    view! {
        {Form::ALL
            .map(|form| {
                view! {
                    <button
                        class="tool"
                        class:tool-main=form == Form::Link
                        type="button"
                        data-testid=form.hook()
                        title=form.about()
                        aria-label=move || if done.get() == Some(form) { "Copied" } else { form.about() }
                        on:click=move |_| copy(form)
                    >
                        {move || if done.get() == Some(form) { "Copied" } else { form.label() }}
                    </button>
                }
            })
            .collect_view()}
        <span class="unseen" role="status">
            {move || done.get().map(|_| "Copied to the clipboard")}
        </span>
        {move || {
            shown
                .get()
                .map(|text| {
                    view! {
                        <div class="handoff-text">
                            <label for="handoff-text">"Copy this text"</label>
                            <textarea id="handoff-text" readonly rows="4" prop:value=text.clone()></textarea>
                            <button type="button" class="tool" on:click=move |_| shown.set(None)>
                                "Close"
                            </button>
                        </div>
                    }
                })
        }}
    }
}

fn select_shown() {
    if let Some(area) = browser::element("handoff-text").and_then(|e| e.dyn_into::<web_sys::HtmlTextAreaElement>().ok())
    {
        let _ = area.focus();
        area.select();
    }
}
