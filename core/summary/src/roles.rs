//! What the cards that do other things than the first take, in words.

use plimsoll_estimate::{Category, Estimate, Role};

use super::phase;

/// A line of each role but the first, whose figures are the estimate's, and what is alive at its peak; none where all cards do the same.
pub fn roles(estimate: &Estimate) -> Vec<(String, String)> {
    estimate
        .roles
        .iter()
        .skip(1)
        .flat_map(|role| [(cards(role), figures(role)), ("at its peak".to_owned(), alive(role))])
        .collect()
}

/// `Cards 1 to 3`.
fn cards(role: &Role) -> String {
    match role.ranks.as_slice() {
        [first, .., last] => format!("Each of cards {first} to {last}"),
        [one] => format!("Card {one}"),
        [] => role.name.clone(),
    }
}

fn figures(role: &Role) -> String {
    let peak = &role.peak;
    let when = match peak.step {
        0 => "while the model is loaded".to_owned(),
        step => format!("in the {} of step {step}", phase(peak.phase.as_str())),
    };
    format!(
        "{}, {} of it reserved and {} allocated, most {when}; {}",
        peak.process,
        peak.reserved,
        peak.allocated,
        role.verdict.label()
    )
}

fn alive(role: &Role) -> String {
    let live = Category::ALL.iter().map(|category| (role.at_peak.get(*category), category.label()));
    let words: Vec<String> =
        live.filter(|(bytes, _)| !bytes.is_zero()).map(|(bytes, label)| format!("{label} {bytes}")).collect();
    words.join(", ")
}
