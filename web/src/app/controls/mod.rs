//! The manifest: everything one can say about a run.

mod advanced;
mod config;
mod device;
mod family;
mod load;
mod lora;
mod model;
mod recipe;
mod sizes;

use leptos::prelude::*;

#[component]
pub fn Controls() -> impl IntoView {
    view! {
        <form class="controls" aria-label="The run" on:submit=|event| event.prevent_default()>
            <section class="group">
                <h2>"Model"</h2>
                <model::ModelChoice/>
                <config::ConfigPaste/>
                <sizes::OwnSizes/>
            </section>
            <section class="group">
                <h2>"Card"</h2>
                <device::DeviceChoice/>
            </section>
            <section class="group">
                <h2>"Load"</h2>
                <load::Load/>
            </section>
            <section class="group">
                <h2>"Recipe"</h2>
                <recipe::Recipe/>
                <lora::LoraChoice/>
                <advanced::Advanced/>
            </section>
        </form>
    }
}
