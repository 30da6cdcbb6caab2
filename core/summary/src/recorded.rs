//! What a hull is, in words for whoever opens one.

use plimsoll_ledger::hull::{Axis, Hull};
use plimsoll_scenario::variant_in_words;

/// A hull described: a name for each line, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// What and how.
    pub lines: Vec<(&'static str, String)>,
}

/// What an axis may be.
pub fn range(axis: &Axis) -> String {
    match axis.step {
        1 => format!("From {}, the least it was recorded at.", axis.least),
        step => format!("Multiples of {step} from {}.", axis.least),
    }
}

impl Recorded {
    /// Of a hull that was read, so its witnesses came out.
    pub fn of(hull: &Hull) -> Self {
        let made: Vec<String> = hull.made.iter().map(|(name, version)| format!("{name} {version}")).collect();
        let axes: Vec<&str> = hull.axes.iter().map(|axis| axis.name.as_str()).collect();
        let inputs: Vec<String> = hull.inputs.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
        let witnesses: usize = hull.tapes.iter().map(|tape| tape.witnesses.len()).sum();
        let alone = hull.tapes.iter().any(|tape| tape.checkpointed && !tape.is_marked());
        let marked = hull.tapes.iter().any(|tape| tape.is_marked());
        let checkpointing = match (alone, marked) {
            (true, _) => "as it was recorded under it",
            (false, true) => "worked out: what the model's own switch checkpoints, or blocks that repeat",
            (false, false) => "only of modules that are named",
        };
        let mut asked: Vec<String> = hull
            .tapes
            .iter()
            .flat_map(|tape| &tape.asked)
            .map(|(who, _, told)| format!("{who} was told {told}"))
            .collect();
        asked.sort();
        asked.dedup();
        let mut lines = vec![
            ("Model", hull.model.clone()),
            ("Loss", hull.loss.clone()),
            ("Inputs", inputs.join(", ")),
            ("Made with", made.join(", ")),
            ("Axes", format!("{}; {} is the micro-batch", axes.join(", "), axes.first().copied().unwrap_or("none"))),
            ("Precisions", hull.precisions().join(", ")),
            ("Checkpointing", checkpointing.to_owned()),
            ("Witnesses", format!("{witnesses} of {witnesses} direct recordings come out")),
        ];
        let also: Vec<String> = hull.variants().into_iter().map(variant_in_words).collect();
        if !also.is_empty() {
            lines.insert(lines.len() - 2, ("Recorded as well", also.join("; ")));
        }
        if !asked.is_empty() {
            lines.push(("Numbers of the card", asked.join("; ")));
        }
        Self { lines }
    }
}
