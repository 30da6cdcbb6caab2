//! The manifest: everything one can say about a run.

mod adapters;
mod config;
mod device;
mod family;
mod hull;
mod lever;
mod model;
mod rest;
mod sizes;

use leptos::html::Form;
use leptos::prelude::*;
use plimsoll_core::scenario::Group;

use crate::app::explain::{Explain, ExplainToggle};
use crate::app::{Painted, browser};

/// The model and the card come with the verdict; all that else can be said of a run when that is painted.
#[component]
pub fn Controls(
    /// How far the page has been painted.
    painted: ArcRwSignal<Painted>,
) -> impl IntoView {
    let refused = hull::Refused::new();
    let explain: Explain = expect_context();
    let form = NodeRef::<Form>::new();
    // A column longer than the window goes along with the page until its end is in sight: it needs no bar of its own.
    Effect::new(move || {
        if let Some(form) = form.get() {
            let style = web_sys::HtmlElement::style(&form);
            browser::watch_height(&form, move |height| {
                let _ = style.set_property("--tall", &format!("{height}px"));
            });
        }
    });
    view! {
        <form
            class="controls"
            class:explains=move || explain.is_on()
            aria-label="The run"
            node_ref=form
            on:submit=|event| event.prevent_default()
        >
            <section class="group">
                <h2>"Model"</h2>
                <model::ModelChoice/>
                <div class="folds">
                    <config::ConfigPaste hulls=refused/>
                    <sizes::OwnSizes/>
                    <hull::HullChoice refused/>
                </div>
            </section>
            <section class="group">
                <h2>"Card"</h2>
                <device::DeviceChoice/>
            </section>
            <Show when={move || painted.get() >= Painted::Verdict}>
                <section class="group">
                    <h2>"Load"</h2>
                    <lever::Levers group=Group::Load/>
                </section>
                <section class="group">
                    <div class="group-head">
                        <h2>"Recipe"</h2>
                        <ExplainToggle/>
                        <button
                            type="button"
                            class="take"
                            data-testid="to-exchange"
                            on:click=move |_| browser::focus("exchange-text")
                        >
                            "bring yours"
                        </button>
                    </div>
                    <lever::Levers group=Group::Recipe/>
                    <adapters::Adapters/>
                    <rest::Rest/>
                </section>
            </Show>
        </form>
    }
}
