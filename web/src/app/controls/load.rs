//! What is loaded: the batch, and how large a sample is.

use leptos::prelude::*;
use plimsoll_core::scenario::{Mode, limits};
use plimsoll_web::{engine, number};

use crate::app::planner::Planner;
use crate::app::widgets::NumberField;

#[component]
pub fn Load() -> impl IntoView {
    let planner = Planner::get();
    let has_sequence = Memo::new(move |_| planner.scenario.with(|s| s.input.seq.is_some()));
    let has_target = Memo::new(move |_| planner.scenario.with(|s| s.input.target_seq.is_some()));
    let generates = Memo::new(move |_| planner.scenario.with(|s| s.input.max_new_tokens.is_some()));
    let trains = Memo::new(move |_| planner.scenario.with(|s| s.training.mode == Mode::Train));
    let has_image = Memo::new(move |_| planner.scenario.with(engine::takes_any_image));
    let effective = Signal::derive(move || {
        planner.scenario.with(|s| {
            let batch = s.input.batch.saturating_mul(s.training.accumulation);
            if s.training.accumulation > 1 {
                format!("Samples at once; {} in one optimizer step.", number::grouped(batch))
            } else {
                "Samples at once on this card.".to_owned()
            }
        })
    });
    view! {
        <NumberField
            id="batch"
            label="Micro-batch"
            help=effective
            value=Signal::derive(move || planner.scenario.with(|s| s.input.batch))
            fault=planner.fault_at("batch")
            most=limits::BATCH
            slide=(1, 512)
            set=Callback::new(move |n| planner.try_change(|s| s.input.batch = n))
        />
        <Show when=move || has_sequence.get()>
            <NumberField
                id="seq"
                label="Sequence"
                help="Tokens in a sample.".to_owned()
                value=Signal::derive(move || planner.scenario.with(|s| s.input.seq.unwrap_or(1)))
                fault=planner.fault_at("seq")
                most=Signal::derive(move || planner.scenario.with(engine::longest))
                slide=(64, 131_072)
                set=Callback::new(move |n| planner.try_change(|s| s.input.seq = Some(n)))
            />
        </Show>
        <Show when=move || generates.get()>
            <NumberField
                id="max_new_tokens"
                label="New tokens"
                help="Tokens generated after the prompt.".to_owned()
                value=Signal::derive(move || planner.scenario.with(|s| s.input.max_new_tokens.unwrap_or(1)))
                fault=planner.fault_at("max_new_tokens")
                most=limits::SEQ
                slide=(1, 8192)
                set=Callback::new(move |n| planner.try_change(|s| s.input.max_new_tokens = Some(n)))
            />
        </Show>
        <Show when=move || has_target.get()>
            <NumberField
                id="target_seq"
                label="Target"
                help="Tokens of the decoder in a sample.".to_owned()
                value=Signal::derive(move || planner.scenario.with(|s| s.input.target_seq.unwrap_or(1)))
                fault=planner.fault_at("target_seq")
                most=limits::SEQ
                slide=(16, 4096)
                set=Callback::new(move |n| planner.try_change(|s| s.input.target_seq = Some(n)))
            />
        </Show>
        <Show when=move || has_image.get()>
            <NumberField
                id="image"
                label="Image"
                help="Side of an image in pixels.".to_owned()
                value=Signal::derive(move || planner.scenario.with(|s| s.input.image.unwrap_or(1)))
                fault=planner.fault_at("image")
                most=limits::IMAGE
                slide=(32, 1024)
                set=Callback::new(move |n| planner.try_change(|s| s.input.image = Some(n)))
            />
        </Show>
        <Show when=move || trains.get()>
            <NumberField
                id="accumulation"
                label="Accumulation"
                help="Micro-batches per optimizer step.".to_owned()
                value=Signal::derive(move || planner.scenario.with(|s| s.training.accumulation))
                most=limits::ACCUMULATION
                slide=(1, 128)
                set=Callback::new(move |n| planner.try_change(|s| s.training.accumulation = n))
            />
        </Show>
    }
}
