//! What was wrong with a link: said in full, and out of the way once read.

use leptos::prelude::*;

use super::logbook::Logbook;
use super::planner::Planner;
use super::route::Route;

#[component]
pub fn Notices() -> impl IntoView {
    let planner = Planner::get();
    let (logbook, route) = (Logbook::get(), Route::get());
    view! {
        <div role="region" aria-label="Notices" class="notices">
            {move || {
                let mut notices = planner.notices.get();
                // The compare page says itself why a record was not taken.
                notices.extend(logbook.refused.get().filter(|_| !route.compares.get()));
                (!notices.is_empty())
                    .then(|| {
                        view! {
                            <div class="notice" role="alert" data-testid="notice">
                                <div>{notices.into_iter().map(|n| view! { <p>{n}</p> }).collect_view()}</div>
                                <button
                                    type="button"
                                    class="tool"
                                    data-testid="notice-dismiss"
                                    on:click=move |_| {
                                        planner.notices.set(Vec::new());
                                        logbook.refused.set(None);
                                    }
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
