//! What was wrong with a link: said in full, and out of the way once read.

use leptos::prelude::*;

use super::planner::Planner;

#[component]
pub fn Notices() -> impl IntoView {
    let planner = Planner::get();
    view! {
        <div role="region" aria-label="Notices" class="notices">
            {move || {
                let notices = planner.notices.get();
                (!notices.is_empty())
                    .then(|| {
                        view! {
                            <div class="notice" role="alert" data-testid="notice">
                                <div>{notices.into_iter().map(|n| view! { <p>{n}</p> }).collect_view()}</div>
                                <button
                                    type="button"
                                    class="tool"
                                    data-testid="notice-dismiss"
                                    on:click=move |_| planner.notices.set(Vec::new())
                                >
                                    "Dismiss"
                                </button>
                            </div>
                        }
                    })
            }}
        </div>
    }
}
