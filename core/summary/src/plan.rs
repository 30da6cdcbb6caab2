//! A plan for several cards in few words.

use plimsoll_estimate::fit::{Plan, Plans, seconds};

/// `37.00 PFLOP; 1.20 GiB over NVLink, 3.40 GiB over the network`: what a step takes of each card. `joined_by` are the links
/// between the cards of a machine.
pub fn takes(plan: &Plan, joined_by: &str) -> String {
    let traffic = &plan.traffic;
    let host = "to the machine's memory and back".to_owned();
    let over = [
        (traffic.peers, format!("over {joined_by}")),
        (traffic.network, "over the network".to_owned()),
        (traffic.host, host),
    ];
    let sent: Vec<String> =
        over.iter().filter(|(bytes, _)| !bytes.is_zero()).map(|(bytes, way)| format!("{bytes} {way}")).collect();
    let more = match plan.extra_flops {
        // A loss that is divided once more is no news.
        extra if extra < plan.flops / 1000 => String::new(),
        extra => format!(", {} more than the fewest", operations(extra)),
    };
    let sent = if sent.is_empty() { "nothing sent".to_owned() } else { sent.join(", ") };
    format!("{}{more}; {sent}", operations(plan.flops))
}

/// `37.4 s of compute, 8.6 s over NVLink`: what no step is faster than.
pub fn bound(plan: &Plan, joined_by: &str) -> String {
    let bound = &plan.bound;
    let parts = [
        (bound.compute, "of compute".to_owned()),
        (bound.peers, format!("over {joined_by}")),
        (bound.network, "over the network".to_owned()),
        (bound.host, "to and from the machine's memory".to_owned()),
    ];
    let said = parts.iter().filter(|(time, _)| *time > 0.0).map(|(time, of)| format!("{} {of}", seconds(*time)));
    said.collect::<Vec<String>>().join(", ")
}

/// `20 ways in 400 combinations: 54 were run, 346 are ruled out by bounds`.
pub fn searched(plans: &Plans) -> String {
    let number = plimsoll_ground::grouped;
    format!(
        "{} combinations: {} were run, {} are ruled out by bounds; {} runs in all",
        number(plans.combinations),
        number(plans.looked_at),
        number(plans.pruned),
        number(plans.runs)
    )
}

/// Floating-point operations, in thousands of thousands.
fn operations(flops: u64) -> String {
    let units = [(1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP")];
    let count = flops as f64;
    let (unit, name) = units.into_iter().find(|(unit, _)| count >= *unit).unwrap_or((1e6, "MFLOP"));
    format!("{:.2} {name}", count / unit)
}

#[cfg(test)]
mod tests {
    use super::operations;

    #[test]
    fn counts_are_said_in_few_digits() {
        assert_eq!(operations(37_000_000_000_000_000), "37.00 PFLOP");
    }
}
