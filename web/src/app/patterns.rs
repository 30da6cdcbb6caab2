//! Hatchings the drawings share: an engraver's way to tell layers apart without colour.

use leptos::prelude::*;

#[component]
pub fn Patterns() -> impl IntoView {
    view! {
        <svg class="patterns" width="0" height="0" aria-hidden="true" focusable="false">
            <defs>
                <pattern id="hatch-fragmentation" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
                    <rect class="hatch-ground" width="6" height="6"/>
                    <rect class="hatch-line" width="1.6" height="6"/>
                </pattern>
                <pattern id="hatch-context" width="6" height="6" patternUnits="userSpaceOnUse">
                    <rect class="hatch-ground-context" width="6" height="6"/>
                    <circle class="hatch-dot" cx="1.5" cy="1.5" r="1"/>
                    <circle class="hatch-dot" cx="4.5" cy="4.5" r="1"/>
                </pattern>
                <pattern id="hatch-deep" width="10" height="10" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
                    <rect class="hatch-deep-line" width="2" height="10"/>
                </pattern>
            </defs>
        </svg>
    }
}
