//! Fields: what a draft in one means, and the stops of the sliders beside them.

use plimsoll_core::scenario::{Kind, Lever, parse_gib, print_memory};
use serde_json::Value;

/// A whole number without what sets its digits in groups.
fn compact(draft: &str) -> String {
    draft.chars().filter(|c| !matches!(c, ' ' | ',' | '_' | '\u{a0}')).collect()
}

/// What a draft in a whole-number field means.
///
/// # Errors
/// One sentence that says what is accepted.
pub fn whole(draft: &str, least: u64, most: u64) -> Result<u64, String> {
    let refusal =
        || format!("Give a whole number from {} to {}.", crate::number::grouped(least), crate::number::grouped(most));
    match compact(draft).parse::<u64>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(refusal()),
    }
}

/// What a draft means for a lever that is typed; empty is nothing, where it may have no value.
///
/// # Errors
/// One sentence that says what is accepted.
pub fn draft(lever: &Lever, draft: &str) -> Result<Value, String> {
    let draft = draft.trim();
    match lever.row.kind {
        Kind::Count { most } => whole(draft, 1, most).map(Value::from),
        kind @ (Kind::Amount { .. } | Kind::Power { .. }) => match compact(draft).parse::<u64>() {
            Ok(n) if kind.refuses(n).is_none() => Ok(n.into()),
            _ => Err(format!("Give {}.", kind.in_words())),
        },
        Kind::Fraction => fraction(draft).map(Value::from),
        Kind::Size if draft.is_empty() => Ok(Value::Null),
        Kind::Size => match parse_gib(draft) {
            Ok(bytes) => Ok(print_memory(bytes).into()),
            Err(_) => Err("Give a size like 11.5 (GiB) or 900 MiB.".to_owned()),
        },
        Kind::Names { all, .. } => {
            let names: Vec<&str> = draft.split([',', ' ']).filter(|name| !name.is_empty()).collect();
            Ok(match (names.as_slice(), all) {
                ([], Some(all)) => all.into(),
                ([], None) => Value::Null,
                ([one], Some(all)) if *one == all => all.into(),
                _ => names.into(),
            })
        }
        Kind::Flag | Kind::Words(_) | Kind::Version { .. } | Kind::Id => Ok(draft.into()),
    }
}

/// What stands in the field of such a lever.
pub fn text(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        Some(other) => other.to_string(),
    }
}

/// What a draft in a probability field means.
///
/// # Errors
/// One sentence that says what is accepted.
pub fn fraction(draft: &str) -> Result<f64, String> {
    match draft.trim().replace(',', ".").parse::<f64>() {
        Ok(p) if (0.0..1.0).contains(&p) => Ok(p),
        _ => Err("Give a number from 0 to below 1.".to_owned()),
    }
}

/// The values a slider stops at, from `least` to `most`: powers of two and the points halfway between them.
pub fn stops(least: u64, most: u64) -> Vec<u64> {
    let mut stops = vec![least.max(1)];
    let mut power: u64 = 1;
    while power <= most {
        for value in [power, power + power / 2] {
            if stops.last().is_some_and(|&last| value > last) && value <= most {
                stops.push(value);
            }
        }
        match power.checked_mul(2) {
            Some(next) => power = next,
            None => break,
        }
    }
    stops
}

/// Index of the stop nearest to `value` on a logarithmic scale.
pub fn nearest_stop(stops: &[u64], value: u64) -> usize {
    let distance = |stop: u64| (stop.max(1) as f64 / value.max(1) as f64).ln().abs();
    stops.iter().enumerate().min_by(|a, b| distance(*a.1).total_cmp(&distance(*b.1))).map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::scenario::{at, lever};
    use serde_json::{Value, json};

    use super::{draft, fraction, nearest_stop, stops, text, whole};

    #[test]
    fn numbers_may_be_grouped_and_nothing_else() {
        assert_eq!(whole("1,024", 1, 4096), Ok(1024));
        assert_eq!(whole(" 8 ", 1, 4096), Ok(8));
        for bad in ["", "0", "-1", "1.5", "1e3", "four", "99999999999999999999999"] {
            assert!(whole(bad, 1, 4096).is_err(), "{bad}");
        }
    }

    #[test]
    fn memory_is_gib_unless_said_otherwise() {
        let memory = |text: &str| draft(lever(at::device::memory).unwrap(), text);
        assert_eq!(memory(""), Ok(Value::Null));
        assert_eq!(memory("11.5"), Ok("11.5 GiB".into()));
        assert_eq!(memory("11,5 GiB"), Ok("11.5 GiB".into()));
        assert_eq!(memory("900MiB"), Ok("900 MiB".into()));
        assert_eq!(memory("12 G"), Ok("12 GiB".into()));
        assert_eq!(memory("12GB"), Ok("12000000000 B".into()));
        for bad in ["-1", "nan", "inf", "1e300", "lots"] {
            assert!(memory(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_stand_between_commas_or_spaces() {
        let targets = |text: &str| draft(lever(at::lora::targets).unwrap(), text);
        assert_eq!(targets(""), Ok("all-linear".into()));
        assert_eq!(targets("all-linear"), Ok("all-linear".into()));
        assert_eq!(targets("q_proj,  v_proj"), Ok(json!(["q_proj", "v_proj"])));
        assert_eq!(draft(lever(at::lora::modules_to_save).unwrap(), " "), Ok(Value::Null));
        assert_eq!(text(Some(&json!(["q_proj", "v_proj"]))), "q_proj, v_proj");
        assert_eq!((text(None), text(Some(&json!(0.1)))), (String::new(), "0.1".to_owned()));
    }

    #[test]
    fn probabilities_stay_below_one() {
        assert_eq!(fraction("0,05"), Ok(0.05));
        assert_eq!(fraction("0"), Ok(0.0));
        for bad in ["", "1", "-0.1", "nan", "half"] {
            assert!(fraction(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn stops_rise_and_start_at_the_least() {
        assert_eq!(stops(1, 16), [1, 2, 3, 4, 6, 8, 12, 16]);
        assert_eq!(stops(128, 512), [128, 192, 256, 384, 512]);
        assert_eq!(nearest_stop(&stops(1, 16), 5), 4);
        assert_eq!(nearest_stop(&stops(1, 16), 900), 7);
        assert_eq!(nearest_stop(&[], 900), 0);
    }
}
