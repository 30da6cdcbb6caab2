//! What few change: the rest of the loop, and the versions whose rules are followed.

use leptos::prelude::*;
use plimsoll_core::scenario::Group;

use super::lever::Levers;

#[component]
pub fn Rest() -> impl IntoView {
    view! {
        <details class="fold">
            <summary>"More of the loop"</summary>
            <Levers group=Group::Loop/>
            <div class="size-grid">
                <Levers group=Group::Software/>
            </div>
        </details>
    }
}
