//! The verdict on what a link asks, painted before the planner is made: in the place of that which is served with the page.

use plimsoll_core::Scenario;
use plimsoll_web::compare::view::View;
use plimsoll_web::served;

use super::{browser, hulls, route, scheduler};

/// What the root is marked with where the address asks another question than the page is served with an answer to.
const ASKED: &str = "data-asked";

/// Runs the scenario and shows its verdict, where the page waits for one: whether it does.
pub fn show(scenario: &Scenario) -> bool {
    let Some(root) = browser::document().and_then(|document| document.document_element()) else { return false };
    // A model whose file is still to come has no verdict yet.
    if !root.has_attribute(ASKED) || View::is_at(&route::hash()) || hulls::missing(scenario).is_some() {
        return false;
    }
    let Some(place) = root.query_selector("#shell > .served").ok().flatten() else { return false };
    let Some(reading) = scheduler::ahead(scenario) else { return false };
    let _ = root.remove_attribute(ASKED);
    place.set_outer_html(&served::verdict(scenario, &reading));
    true
}
