//! Number fields: what a draft means, and the stops of the sliders beside them.

/// What a draft in a whole-number field means.
///
/// # Errors
/// One sentence that says what is accepted.
pub fn whole(draft: &str, least: u64, most: u64) -> Result<u64, String> {
    let compact: String = draft.chars().filter(|c| !matches!(c, ' ' | ',' | '_' | '\u{a0}')).collect();
    let refusal =
        || format!("Give a whole number from {} to {}.", crate::number::grouped(least), crate::number::grouped(most));
    match compact.parse::<u64>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(refusal()),
    }
}

/// What a draft in a GiB field means; empty is `None` (the card's own value). Units may be left out.
///
/// # Errors
/// One sentence that says what is accepted.
pub fn memory(draft: &str) -> Result<Option<plimsoll_core::Bytes>, String> {
    let compact: String = draft.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase();
    if compact.is_empty() {
        return Ok(None);
    }
    let (number, factor) = if let Some(n) = compact.strip_suffix("mib") {
        (n, 1_048_576.0)
    } else {
        (compact.strip_suffix("gib").unwrap_or(&compact), 1_073_741_824.0)
    };
    // 16 PiB: far above any card, far below what overflows.
    match number.replace(',', ".").parse::<f64>() {
        Ok(n) if n > 0.0 && n * factor < (1u64 << 54) as f64 => {
            Ok(Some(plimsoll_core::Bytes::new((n * factor).round() as u64)))
        }
        _ => Err("Give a size like 11.5 (GiB) or 900 MiB.".to_owned()),
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
    use plimsoll_core::Bytes;

    use super::{fraction, memory, nearest_stop, stops, whole};

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
        assert_eq!(memory(""), Ok(None));
        assert_eq!(memory("11.5"), Ok(Some(Bytes::from_mib(11_776))));
        assert_eq!(memory("11,5 GiB"), Ok(Some(Bytes::from_mib(11_776))));
        assert_eq!(memory("900MiB"), Ok(Some(Bytes::from_mib(900))));
        for bad in ["0", "-1", "nan", "inf", "1e300", "lots"] {
            assert!(memory(bad).is_err(), "{bad}");
        }
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
