//! Low-rank adapters.

use leptos::prelude::*;
use plimsoll_core::scenario::{Lora, LoraTargets, limits};
use plimsoll_web::wording::sentence;
use plimsoll_web::{field, levers};

use crate::app::planner::Planner;
use crate::app::widgets::{NumberField, Switch, TextField};

#[component]
pub fn LoraChoice() -> impl IntoView {
    let planner = Planner::get();
    let on = Memo::new(move |_| planner.scenario.with(|s| s.training.lora.is_some()));
    let edit = move |change: &dyn Fn(&mut Lora)| {
        planner.try_change(|s| {
            if let Some(lora) = &mut s.training.lora {
                change(lora);
            }
        })
    };
    view! {
        <Switch
            id="lora"
            label="LoRA"
            help="Train small adapters on frozen weights, as peft does."
            value=on
            disabled=Signal::derive(move || planner.scenario.with(|s| !levers::takes_lora(s)))
            set=Callback::new(move |on: bool| planner.change(|s| s.training.lora = on.then(levers::lora)))
        />
        <Show when=move || on.get()>
            <div class="size-grid sub">
                <NumberField
                    id="lora-rank"
                    label="Rank"
                    help="Alpha is twice this.".to_owned()
                    value=Signal::derive(move || lora(planner).rank)
                    fault=planner.fault_at("rank")
                    most=limits::RANK
                    set=Callback::new(move |n| edit(&|lora| lora.rank = n))
                />
                <TextField
                    id="lora-dropout"
                    label="Dropout"
                    help="On the adapter's input, 0 to below 1."
                    value=Signal::derive(move || lora(planner).dropout.to_string())
                    set=Callback::new(move |text: String| {
                        let p = field::fraction(&text)?;
                        edit(&|lora| lora.dropout = p).map_err(|fault| sentence(&fault.problem))
                    })
                />
                <TextField
                    id="lora-targets"
                    label="Targets"
                    help="all-linear, or module names such as q_proj, v_proj."
                    value=Signal::derive(move || names(&lora(planner).targets))
                    fault=planner.fault_at("targets")
                    set=Callback::new(move |text: String| {
                        edit(&|lora| lora.targets = targets(&text)).map_err(|fault| sentence(&fault.problem))
                    })
                />
            </div>
        </Show>
    }
}

fn lora(planner: Planner) -> Lora {
    planner.scenario.with(|s| s.training.lora.clone()).unwrap_or_else(levers::lora)
}

fn names(targets: &LoraTargets) -> String {
    match targets {
        LoraTargets::AllLinear => "all-linear".to_owned(),
        LoraTargets::Names(names) => names.join(", "),
    }
}

fn targets(text: &str) -> LoraTargets {
    let names: Vec<String> = text.split([',', ' ']).filter(|n| !n.is_empty()).map(str::to_owned).collect();
    match names.as_slice() {
        [] => LoraTargets::AllLinear,
        [one] if one == "all-linear" => LoraTargets::AllLinear,
        _ => LoraTargets::Names(names),
    }
}
