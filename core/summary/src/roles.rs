//! What cards take that do other things than the first: in words, and as hulls to be drawn side by side.

use plimsoll_estimate::{Category, Estimate, Role};
use plimsoll_ground::Bytes;
use serde::{Deserialize, Serialize};

use super::parts::stacked;
use super::{Part, phase};

/// A card of one role, as it is at its deepest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hull {
    /// Which cards: `Card 0`, `Each of cards 1 to 3`.
    pub cards: String,
    /// The whole process.
    pub process: Bytes,
    /// Load line minus that: to spare, or over where negative.
    pub headroom: i64,
    /// What it is stacked of, in the order of [`super::Kind::ALL`].
    pub parts: Vec<Part>,
}

/// A hull of every role; none where all cards do the same.
pub fn fleet(estimate: &Estimate) -> Vec<Hull> {
    if estimate.roles.len() < 2 {
        return Vec::new();
    }
    let line = estimate.device.load_line.get().cast_signed();
    let hull = |role: &Role| Hull {
        cards: cards(role),
        process: role.peak.process,
        headroom: line - role.peak.process.get().cast_signed(),
        parts: stacked(&role.peak, &role.at_peak),
    };
    estimate.roles.iter().map(hull).collect()
}

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

#[cfg(test)]
mod tests {
    use plimsoll_estimate::estimate;
    use plimsoll_ground::Bytes;
    use plimsoll_scenario::Scenario;
    use serde_json::json;

    use super::fleet;

    fn of(strategy: &str) -> Vec<super::Hull> {
        let value = json!({"model": {"hf": {"model_type": "gpt2", "n_layer": 4, "n_embd": 512, "n_head": 8, "vocab_size": 50000}},
            "input": {"batch": 8, "seq": 32}, "training": {"precision": "fp32"}, "device": {"gpu": "rtx-3090"},
            "parallel": {"gpus": 4, "strategy": strategy}});
        fleet(&estimate(&Scenario::from_value(&value).unwrap()).unwrap())
    }

    #[test]
    fn cards_that_do_other_things_have_a_hull_of_their_own() {
        let hulls = of("data-parallel");
        assert_eq!(
            hulls.iter().map(|hull| hull.cards.as_str()).collect::<Vec<_>>(),
            ["Card 0", "Each of cards 1 to 3"]
        );
        for hull in &hulls {
            assert_eq!(hull.parts.iter().map(|part| part.bytes).sum::<Bytes>(), hull.process);
        }
        assert!(hulls[0].process > hulls[1].process);
        assert!(of("ddp").is_empty());
    }
}
