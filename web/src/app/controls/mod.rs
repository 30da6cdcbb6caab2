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

use leptos::prelude::*;
use plimsoll_core::scenario::Group;

#[component]
pub fn Controls() -> impl IntoView {
    let refused = hull::Refused::new();
    view! {
        <form class="controls" aria-label="The run" on:submit=|event| event.prevent_default()>
            <section class="group">
                <h2>"Model"</h2>
                <model::ModelChoice/>
                <config::ConfigPaste hulls=refused/>
                <hull::HullChoice refused/>
                <sizes::OwnSizes/>
            </section>
            <section class="group">
                <h2>"Card"</h2>
                <device::DeviceChoice/>
            </section>
            <section class="group">
                <h2>"Load"</h2>
                <lever::Levers group=Group::Load/>
            </section>
            <section class="group">
                <h2>"Recipe"</h2>
                <lever::Levers group=Group::Recipe/>
                <adapters::Adapters/>
                <rest::Rest/>
            </section>
        </form>
    }
}
