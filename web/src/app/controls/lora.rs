//! Low-rank adapters.

use leptos::prelude::*;
use plimsoll_core::scenario::{Lora, LoraTargets, Quantization, limits};
use plimsoll_web::wording::sentence;
use plimsoll_web::{field, levers};

use crate::app::planner::Planner;
use crate::app::widgets::{NumberField, Segments, Switch, TextField};

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
            set=Callback::new(move |on: bool| {
                planner
                    .change(|s| {
                        s.training.lora = on.then(levers::lora);
                        // Quantized weights are trained through adapters only.
                        if !on {
                            s.training.quantization = Quantization::None;
                            levers::settle(&mut s.training);
                        }
                    });
            })
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
                <TextField
                    id="lora-save"
                    label="Modules to save"
                    help="Trained whole beside the adapters: module names such as embed_tokens, lm_head. Empty: none."
                    value=Signal::derive(move || lora(planner).modules_to_save.join(", "))
                    fault=planner.fault_at("modules_to_save")
                    set=Callback::new(move |text: String| {
                        edit(&|lora| lora.modules_to_save = listed(&text)).map_err(|fault| sentence(&fault.problem))
                    })
                />
            </div>
            <Switch
                id="lora-dora"
                label="DoRA"
                help="Learns each weight's magnitude too; its norm is computed from the whole weight at every forward."
                value=Signal::derive(move || lora(planner).dora)
                set=Callback::new(move |on: bool| {
                    planner
                        .change(|s| {
                            if let Some(lora) = &mut s.training.lora {
                                lora.dora = on;
                            }
                        });
                })
            />
            <Segments
                name="quantization"
                label="Base weights quantized"
                value=Signal::derive(move || planner.scenario.with(|s| s.training.quantization))
                set=Callback::new(move |word| {
                    planner
                        .change(|s| {
                            s.training.quantization = word;
                            levers::settle(&mut s.training);
                        });
                })
            />
            <Show when=move || planner.scenario.with(|s| s.training.quantization != Quantization::None)>
                <Switch
                    id="prepare-kbit"
                    label="Prepared by peft"
                    help="prepare_model_for_kbit_training casts norms, embeddings and the output head to float32. Off: they \
                    stay as loaded, as in litgpt, torchtune and unsloth."
                    value=Signal::derive(move || planner.scenario.with(|s| s.training.prepare_kbit))
                    disabled=Signal::derive(move || planner.scenario.with(|s| !levers::takes_unprepared(&s.training)))
                    set=Callback::new(move |on| planner.change(|s| s.training.prepare_kbit = on))
                />
            </Show>
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
    let names = listed(text);
    match names.as_slice() {
        [] => LoraTargets::AllLinear,
        [one] if one == "all-linear" => LoraTargets::AllLinear,
        _ => LoraTargets::Names(names),
    }
}

fn listed(text: &str) -> Vec<String> {
    text.split([',', ' ']).filter(|n| !n.is_empty()).map(str::to_owned).collect()
}
