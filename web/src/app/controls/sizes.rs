//! A model by its own sizes: a Hugging Face architecture edited, or one of the small families.

use leptos::prelude::*;
use plimsoll_core::catalog::families::Size;
use plimsoll_core::scenario::{Change, ModelSource, at};
use plimsoll_web::field;
use plimsoll_web::sizes;
use plimsoll_web::wording::sentence;

use super::family::{FamilyChoice, FamilySizes};
use crate::app::planner::Planner;
use crate::app::widgets::TextField;

#[component]
pub fn OwnSizes() -> impl IntoView {
    let planner = Planner::get();
    // The fields are laid out anew only when the architecture changes, not with every digit.
    let shape = Memo::new(move |_| {
        planner.below.scenario.with(|s| match &s.model.source {
            ModelSource::Family { name, .. } => Err(name.clone()),
            source => Ok(source.family().sizes),
        })
    });
    let own = planner.scenario.with_untracked(|s| matches!(s.model.source, ModelSource::Family { .. }));
    view! {
        <details class="fold" prop:open=own>
            <summary>"Own sizes"</summary>
            <FamilyChoice/>
            <div class="size-grid">
                {move || match shape.get() {
                    Ok(sizes) => sizes.iter().map(|&size| view! { <SizeField size/> }).collect_view().into_any(),
                    Err(family) => view! { <FamilySizes family/> }.into_any(),
                }}
            </div>
        </details>
    }
}

/// One size of a config; editing a catalog's model makes it one's own.
#[component]
fn SizeField(size: Size) -> impl IntoView {
    let planner = Planner::get();
    let value = Signal::derive(move || {
        let config = planner.below.scenario.with(|s| s.model.source.config()).unwrap_or_default();
        sizes::text(&config, size)
    });
    let set = Callback::new(move |text: String| {
        let number = match text.trim() {
            "" if size.optional => None,
            text => Some(field::whole(text, 1, size.most)?),
        };
        let config = planner.scenario.with_untracked(|s| s.model.source.config()).unwrap_or_default();
        planner
            .change(&Change::Model(ModelSource::HuggingFace(sizes::with(&config, size, number))))
            .map_err(|fault| sentence(&fault.problem))
    });
    view! { <TextField id=size.key label=size.label help=size.help value fault=planner.fault_at(format!("{}.{}", at::model::hf, size.key)) set/> }
}
