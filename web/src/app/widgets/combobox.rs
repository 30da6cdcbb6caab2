//! A list one searches by typing: the ARIA combobox pattern with a listbox popup.

use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::{HtmlInputElement, ScrollIntoViewOptions, ScrollLogicalPosition};

use crate::app::browser;

/// One row of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What is chosen.
    pub id: &'static str,
    /// What people read.
    pub name: &'static str,
    /// Beside it, small.
    pub detail: String,
}

/// `value` is the name shown while nothing is typed; `find` lists what matches, best first.
#[component]
pub fn Combobox(
    id: &'static str,
    label: &'static str,
    #[prop(into)] help: Signal<String>,
    #[prop(into)] value: Signal<String>,
    find: Callback<String, Vec<Item>>,
    choose: Callback<&'static str>,
) -> impl IntoView {
    let query = RwSignal::new(None::<String>);
    let open = RwSignal::new(false);
    let active = RwSignal::new(0usize);
    let items = Memo::new(move |_| if open.get() { find.run(query.get().unwrap_or_default()) } else { Vec::new() });
    let list_id = format!("{id}-list");
    let help_id = format!("{id}-help");
    let option_id = move |index: usize| format!("{id}-option-{index}");

    let close = move || {
        open.set(false);
        query.set(None);
    };
    let take = move |index: usize| {
        if let Some(item) = items.with_untracked(|items| items.get(index).cloned()) {
            choose.run(item.id);
            close();
        }
    };
    let show = move |index: usize| {
        active.set(index);
        browser::after(0, move || scroll_to(&option_id(index)));
    };
    // A list that opens stands at what is chosen now.
    let unfold = move || {
        open.set(true);
        let now = value.get_untracked();
        show(items.with_untracked(|items| items.iter().position(|item| item.name == now)).unwrap_or(0));
    };
    let keys = move |event: web_sys::KeyboardEvent| {
        let last = items.with_untracked(|items| items.len().saturating_sub(1));
        let now = active.get_untracked();
        let is_open = open.get_untracked();
        match event.key().as_str() {
            "ArrowDown" | "ArrowUp" if !is_open => {
                event.prevent_default();
                unfold();
            }
            "ArrowDown" => {
                event.prevent_default();
                show(if now >= last { 0 } else { now + 1 });
            }
            "ArrowUp" => {
                event.prevent_default();
                show(if now == 0 { last } else { now - 1 });
            }
            "PageDown" if is_open => {
                event.prevent_default();
                show((now + 8).min(last));
            }
            "PageUp" if is_open => {
                event.prevent_default();
                show(now.saturating_sub(8));
            }
            "Enter" if is_open => {
                event.prevent_default();
                take(now);
            }
            "Escape" if is_open => {
                event.prevent_default();
                close();
            }
            "Tab" => close(),
            _ => {}
        }
    };
    let select_all = move |event: web_sys::FocusEvent| {
        if let Some(input) = event.target().and_then(|t| t.dyn_into::<HtmlInputElement>().ok()) {
            input.select();
        }
    };

    view! {
        <div class="field combobox" class:is-open=move || open.get()>
            <label for=id>{label}</label>
            <div class="combobox-box">
                <input
                    id=id
                    data-testid=id
                    type="text"
                    role="combobox"
                    autocomplete="off"
                    spellcheck="false"
                    aria-autocomplete="list"
                    aria-haspopup="listbox"
                    aria-expanded=move || open.get().to_string()
                    aria-controls=list_id.clone()
                    aria-activedescendant=move || {
                        (open.get() && items.with(|items| !items.is_empty())).then(|| option_id(active.get()))
                    }
                    aria-describedby=help_id.clone()
                    prop:value=move || query.get().unwrap_or_else(|| value.get())
                    on:focus=select_all
                    on:click=move |_| {
                        if !open.get_untracked() {
                            unfold();
                        }
                    }
                    on:input:target=move |event| {
                        query.set(Some(event.target().value()));
                        open.set(true);
                        active.set(0);
                    }
                    on:keydown=keys
                    on:blur=move |_| close()
                />
                <svg class="chevron" viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
                    <path d="M2 4.5 6 8.5 10 4.5"/>
                </svg>
                <ul class="options" id=list_id role="listbox" aria-label=label hidden=move || !open.get()>
                    {move || {
                        items
                            .get()
                            .into_iter()
                            .enumerate()
                            .map(|(index, item)| {
                                view! {
                                    <li
                                        id=option_id(index)
                                        class="option"
                                        role="option"
                                        aria-selected=move || (active.get() == index).to_string()
                                        // Keeps the focus in the field: its loss would close the list before the click.
                                        on:pointerdown=move |event| event.prevent_default()
                                        on:mousedown=move |event| event.prevent_default()
                                        on:click=move |_| take(index)
                                    >
                                        <span class="option-name">{item.name}</span>
                                        <span class="option-detail">{item.detail}</span>
                                    </li>
                                }
                            })
                            .collect_view()
                    }}
                    {move || {
                        (open.get() && items.with(Vec::is_empty))
                            .then(|| {
                                view! {
                                    <li class="option-none" role="option" aria-disabled="true" aria-selected="false">
                                        "Nothing by that name in the catalog"
                                    </li>
                                }
                            })
                    }}
                </ul>
            </div>
            <p class="help fact" id=help_id>{move || help.get()}</p>
        </div>
    }
}

fn scroll_to(id: &str) {
    if let Some(element) = browser::element(id) {
        let options = ScrollIntoViewOptions::new();
        options.set_block(ScrollLogicalPosition::Nearest);
        element.scroll_into_view_with_scroll_into_view_options(&options);
    }
}
