//! What few change.

use leptos::prelude::*;
use plimsoll_core::scenario::Mode;
use plimsoll_web::engine;

use crate::app::planner::Planner;
use crate::app::widgets::{Segments, Switch};

#[component]
pub fn Advanced() -> impl IntoView {
    let planner = Planner::get();
    let trains = Memo::new(move |_| planner.scenario.with(|s| s.training.mode == Mode::Train));
    let masked = Memo::new(move |_| planner.scenario.with(engine::takes_mask));
    let versions = move || {
        planner.scenario.with(|s| {
            let (torch, transformers) = (&s.software.torch, &s.software.transformers);
            format!("Rules of PyTorch {torch} and transformers {transformers}.")
        })
    };
    view! {
        <details class="fold">
            <summary>"More of the loop"</summary>
            <Segments
                name="attention"
                label="Attention"
                value=Signal::derive(move || planner.scenario.with(|s| s.training.attention))
                set=Callback::new(move |a| planner.change(|s| s.training.attention = a))
            />
            <Show when=move || masked.get()>
                <Segments
                    name="attention-mask"
                    label="Attention mask"
                    value=Signal::derive(move || planner.scenario.with(|s| s.input.attention_mask))
                    set=Callback::new(move |mask| planner.change(|s| s.input.attention_mask = mask))
                />
            </Show>
            <Show when=move || trains.get()>
                <Segments
                    name="zero-grad"
                    label="Zeroing gradients"
                    value=Signal::derive(move || planner.scenario.with(|s| s.training.zero_grad))
                    set=Callback::new(move |z| planner.change(|s| s.training.zero_grad = z))
                />
                <Segments
                    name="zero-grad-at"
                    label="Zeroed"
                    value=Signal::derive(move || planner.scenario.with(|s| s.training.zero_grad_at))
                    set=Callback::new(move |z| planner.change(|s| s.training.zero_grad_at = z))
                />
                <Switch
                    id="clip"
                    label="Gradient clipping"
                    help="clip_grad_norm_ before the optimizer."
                    value=Signal::derive(move || planner.scenario.with(|s| s.training.clip_grad_norm))
                    set=Callback::new(move |on| planner.change(|s| s.training.clip_grad_norm = on))
                />
                <Switch
                    id="keep-outputs"
                    label="Outputs kept"
                    help="The loop holds the logits through backward, as hand-written loops do."
                    value=Signal::derive(move || planner.scenario.with(|s| s.training.keep_outputs))
                    set=Callback::new(move |on| planner.change(|s| s.training.keep_outputs = on))
                />
            </Show>
            <Switch
                id="workspaces"
                label="Kernel workspaces"
                help="Count what cuBLAS and its like allocate inside."
                value=Signal::derive(move || planner.scenario.with(|s| s.device.workspaces))
                set=Callback::new(move |on| planner.change(|s| s.device.workspaces = on))
            />
            <p class="help">{versions}</p>
        </details>
    }
}
