//! The rows the engine is furthest from, each with where the difference comes from.

use plimsoll_core::Bytes;

use super::score::Score;

/// The `count` rows with the largest error of `allocated`, then `reserved`, then `requested`; rows without any error are left out.
pub fn worst<'a>(scores: &[&'a Score], count: usize) -> Vec<&'a Score> {
    let key = |s: &Score| [s.allocated().abs(), s.reserved().abs(), s.requested().abs()];
    let mut rows: Vec<&Score> = scores.iter().copied().filter(|s| key(s) != [0.0; 3]).collect();
    rows.sort_by(|a, b| {
        let (a_key, b_key) = (key(a), key(b));
        b_key
            .iter()
            .zip(&a_key)
            .map(|(y, x)| y.total_cmp(x))
            .find(|o| o.is_ne())
            .unwrap_or_else(|| a.row.id.cmp(&b.row.id))
    });
    rows.truncate(count);
    rows
}

/// What the difference consists of, read off the two answers.
pub fn reason(score: &Score) -> String {
    let (ours, theirs) = (&score.estimate.peak, &score.row.expected.peak);
    if !score.parameters_exact() {
        return "the parameter counts differ".to_owned();
    }
    if !score.unmatched_phases.is_empty() {
        return format!("the loops differ: {}", score.unmatched_phases.join(", "));
    }
    if ours.requested == theirs.requested {
        return if ours.allocated == theirs.allocated {
            "live storages agree to the byte; segments differ".to_owned()
        } else {
            "live storages agree to the byte; blocks differ".to_owned()
        };
    }
    let (ours_in, theirs_in) = (score.peak_phase(), score.expected_peak_phase());
    if ours_in != theirs_in {
        return format!("peaks in {ours_in}, PyTorch in {theirs_in}");
    }
    let mut differences = score.at_peak_differences();
    differences.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes.unsigned_abs()));
    let words: Vec<String> = differences
        .iter()
        .filter(|(_, bytes)| *bytes != 0)
        .take(2)
        .map(|(category, bytes)| {
            let size = Bytes::new(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
            format!("{} {}{size}", category.label(), if *bytes < 0 { "-" } else { "+" })
        })
        .collect();
    format!("at {theirs_in}: {}", words.join(", "))
}
