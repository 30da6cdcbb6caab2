//! Low-rank adapters, and the base they sit on.

use leptos::prelude::*;
use plimsoll_core::scenario::{Change, Group};

use super::lever::Levers;
use crate::app::planner::Planner;
use crate::app::widgets::Switch;

#[component]
pub fn Adapters() -> impl IntoView {
    let planner = Planner::get();
    let on = Memo::new(move |_| planner.scenario.with(|s| s.training.lora.is_some()));
    let adapts = Memo::new(move |_| planner.below.scenario.with(|s| Change::Lora.apply(s).is_ok()));
    let set = Callback::new(move |on: bool| planner.change(&if on { Change::Lora } else { Change::Full }));
    view! {
        <Switch
            id="lora"
            label="LoRA"
            help="Train small adapters on frozen weights, as peft does."
            value=on
            disabled=Signal::derive(move || !adapts.get())
            set
        />
        <div class="size-grid sub">
            <Levers group=Group::Adapters/>
        </div>
    }
}
