//! The estimate beside the measurement: the contract's shape, and of the same scenario.

use serde_json::Value;

use super::super::Measurement;
use super::super::problems::Problems;

/// What a key of the contract holds. More keys may stand beside them: later versions tell more.
#[derive(Clone, Copy)]
enum Holds {
    Count,
    Whole,
    CountOrNull,
    Text,
    Table(&'static [(&'static str, Holds)]),
    List(&'static [(&'static str, Holds)]),
}

const SHAPE: &[(&str, Holds)] = &[
    ("schema", Holds::Count),
    ("scenario", Holds::Table(&[])),
    ("parameters", Holds::Table(&[("total", Holds::Count), ("trainable", Holds::Count)])),
    (
        "peak",
        Holds::Table(&[
            ("allocated", Holds::Count),
            ("requested", Holds::Count),
            ("reserved", Holds::Count),
            ("process", Holds::Count),
            ("phase", Holds::Text),
            ("step", Holds::Count),
            ("op", Holds::Text),
            ("module", Holds::Text),
        ]),
    ),
    ("at_peak", Holds::Table(&[])),
    (
        "phases",
        Holds::List(&[
            ("name", Holds::Text),
            ("step", Holds::CountOrNull),
            ("micro_batch", Holds::CountOrNull),
            ("peak_requested", Holds::Count),
            ("end_requested", Holds::Count),
            ("end_allocated", Holds::Count),
            ("end_reserved", Holds::Count),
        ]),
    ),
    ("device", Holds::Table(&[("gpu", Holds::Text), ("capacity", Holds::Count), ("load_line", Holds::Count)])),
    ("verdict", Holds::Text),
    ("headroom", Holds::Whole),
    ("max_batch", Holds::CountOrNull),
];

const HINT: &str = "give it as plimsoll estimate --format json prints it, or leave the estimate out";

pub fn check(record: &Measurement, problems: &mut Problems) {
    let Some(estimate) = &record.estimate else { return };
    if !holds(estimate, Holds::Table(SHAPE), "estimate", problems) {
        return;
    }
    for section in ["model", "input", "training"] {
        let of = |scenario: &Value| scenario.get(section).cloned();
        problems.unless(
            estimate.get("scenario").and_then(of) == of(&record.scenario),
            format!("estimate.scenario.{section}"),
            || "it is not the scenario that was measured".to_owned(),
            "estimate the same scenario, or leave the estimate out",
        );
    }
}

/// Whether `value` is what it should be; what is not is noted.
fn holds(value: &Value, shape: Holds, key: &str, problems: &mut Problems) -> bool {
    let keys = |value: &Value, shape: &'static [(&'static str, Holds)], key: &str, problems: &mut Problems| {
        let mut good = true;
        for (name, inner) in shape {
            good &= holds(value.get(name).unwrap_or(&Value::Null), *inner, &format!("{key}.{name}"), problems);
        }
        good
    };
    let good = match shape {
        Holds::Count => value.is_u64(),
        Holds::Whole => value.is_i64() || value.is_u64(),
        Holds::CountOrNull => value.is_u64() || value.is_null(),
        Holds::Text => value.is_string(),
        Holds::Table(_) => value.is_object(),
        Holds::List(_) => value.is_array(),
    };
    if !good {
        problems.add(key, "it is missing or of the wrong type", HINT);
        return false;
    }
    match (shape, value) {
        (Holds::Table(shape), value) => keys(value, shape, key, problems),
        (Holds::List(shape), Value::Array(items)) => items
            .iter()
            .enumerate()
            .all(|(index, item)| holds(item, Holds::Table(shape), &format!("{key}[{index}]"), problems)),
        _ => true,
    }
}
