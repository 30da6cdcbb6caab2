//! The Plimsoll mark: a disc crossed by a bar, and the short ladder beside it.

use leptos::prelude::*;

#[component]
pub fn Emblem() -> impl IntoView {
    view! {
        <svg class="emblem" viewBox="0 0 44 32" width="44" height="32" aria-hidden="true">
            <circle class="emblem-disc" cx="15" cy="16" r="10"/>
            <path class="emblem-bar" d="M0 14.4h30v3.2H0z"/>
            <path class="emblem-ladder" d="M35 4h1.6v24H35zM36 4h7v2h-7zM36 9.5h7v2h-7zM36 15h7v2h-7zM36 20.5h7v2h-7zM36 26h7v2h-7z"/>
        </svg>
    }
}
