//! What few change.

use leptos::prelude::*;
use plimsoll_core::scenario::{LossImpl, Mode};
use plimsoll_web::wording::sentence;
use plimsoll_web::{engine, field, levers};

use crate::app::planner::Planner;
use crate::app::widgets::{Segments, Switch, TextField};

#[component]
pub fn Advanced() -> impl IntoView {
    let planner = Planner::get();
    let trains = Memo::new(move |_| planner.scenario.with(|s| s.training.mode == Mode::Train));
    let masked = Memo::new(move |_| planner.scenario.with(engine::takes_mask));
    let versions = move || {
        planner.scenario.with(|s| {
            let (torch, transformers) = (&s.software.torch, &s.software.transformers);
            if s.uses_bitsandbytes() {
                let bitsandbytes = &s.software.bitsandbytes;
                return format!(
                    "Rules of PyTorch {torch}, transformers {transformers} and bitsandbytes {bitsandbytes}."
                );
            }
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
            <Show when=move || planner.scenario.with(levers::takes_fused_loss)>
                <Segments
                    name="loss-impl"
                    label="Head and loss"
                    value=Signal::derive(move || planner.scenario.with(|s| s.training.loss_impl))
                    set=Callback::new(move |l| planner.change(|s| s.training.loss_impl = l))
                />
            </Show>
            <Show when=move || {
                planner.scenario.with(|s| s.model.task.smooths_labels() && s.training.loss_impl == LossImpl::Full)
            }>
                <TextField
                    id="label-smoothing"
                    label="Label smoothing"
                    help="0 to below 1; the Trainer's, for models of Hugging Face."
                    value=Signal::derive(move || planner.scenario.with(|s| s.training.label_smoothing).to_string())
                    fault=planner.fault_at("label_smoothing")
                    set=Callback::new(move |text: String| {
                        let p = field::fraction(&text)?;
                        planner
                            .try_change(|s| s.training.label_smoothing = p)
                            .map_err(|fault| sentence(&fault.problem))
                    })
                />
            </Show>
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
            <Switch
                id="ema"
                label="Moving average of the weights"
                help="A copy of the model on the device, averaged after every step."
                value=Signal::derive(move || planner.scenario.with(|s| s.training.ema))
                set=Callback::new(move |on| planner.change(|s| s.training.ema = on))
            />
            <Switch
                id="compile"
                label="torch.compile"
                help="Not modelled: the estimate stays that of the run without it."
                value=Signal::derive(move || planner.scenario.with(|s| s.training.compile))
                set=Callback::new(move |on| planner.change(|s| s.training.compile = on))
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
