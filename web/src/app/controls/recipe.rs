//! The recipe: precision, optimizer, checkpointing.

use leptos::prelude::*;
use plimsoll_core::scenario::{Checkpointing, Mode, Optimizer, OptimizerImpl};
use plimsoll_web::levers;

use crate::app::planner::Planner;
use crate::app::widgets::{Segments, Switch};

#[component]
pub fn Recipe() -> impl IntoView {
    let planner = Planner::get();
    let choose_optimizer = Callback::new(move |optimizer: Optimizer| {
        planner.change(|s| {
            s.training.optimizer = optimizer;
            let offered = optimizer.implementations();
            if !offered.contains(&s.training.optimizer_impl) {
                s.training.optimizer_impl = offered.first().copied().unwrap_or(OptimizerImpl::ForLoop);
            }
        });
    });
    let trains = Memo::new(move |_| planner.scenario.with(|s| s.training.mode == Mode::Train));
    let refused = RwSignal::new(String::new());
    let choose_mode = Callback::new(move |mode: Mode| {
        refused.set(planner.choose_mode(mode).err().map(|fault| fault.problem).unwrap_or_default());
    });
    view! {
        <Segments
            name="mode"
            label="Mode"
            value=Signal::derive(move || planner.scenario.with(|s| s.training.mode))
            set=choose_mode
        />
        <p class="help" role="status">{move || refused.get()}</p>
        <Segments
            name="precision"
            label="Precision"
            value=Signal::derive(move || planner.scenario.with(|s| s.training.precision))
            set=Callback::new(move |p| {
                planner
                    .change(|s| {
                        s.training.precision = p;
                        levers::settle(&mut s.training);
                    })
            })
        />
        <Show when=move || trains.get()>
            <Segments
                name="optimizer"
                label="Optimizer"
                value=Signal::derive(move || planner.scenario.with(|s| s.training.optimizer))
                set=choose_optimizer
            />
            <Show when=move || planner.scenario.with(|s| s.training.optimizer.implementations().len() > 1)>
                <Segments
                    name="optimizer-impl"
                    label="Its implementation"
                    value=Signal::derive(move || planner.scenario.with(|s| s.training.optimizer_impl))
                    set=Callback::new(move |implementation| {
                        planner.change(|s| s.training.optimizer_impl = implementation);
                    })
                />
            </Show>
            <Switch
                id="checkpointing"
                label="Activation checkpointing"
                help="Each layer keeps only its input and is recomputed in backward."
                value=Signal::derive(move || planner.scenario.with(|s| s.training.checkpointing == Checkpointing::Full))
                disabled=Signal::derive(move || planner.scenario.with(|s| !levers::takes_checkpointing(s)))
                set=Callback::new(move |on| {
                    planner
                        .change(|s| {
                            s.training.checkpointing = if on { Checkpointing::Full } else { Checkpointing::None };
                        });
                })
            />
        </Show>
    }
}
