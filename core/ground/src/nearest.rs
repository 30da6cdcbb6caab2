//! "Did you mean": the known words nearest to what somebody wrote.

use strsim::osa_distance;

/// Longer texts are not compared: nobody mistypes one, and the comparison is quadratic.
const LONGEST: usize = 80;

/// The one known word `text` is most likely a slip of, if any is near enough.
pub fn nearest<'a>(text: &str, known: &[&'a str]) -> Option<&'a str> {
    let started = |plain: &str, text: &str| plain.starts_with(text);
    let (distance, word) = ranked(text, known, started).into_iter().next()?;
    // A third of the letters wrong is a slip; more is another word.
    (distance <= (text.chars().count() / 3).max(1)).then_some(word)
}

/// The known ids nearest to `text`, best first, at most three; ids that have nothing in common with it are left out.
pub fn nearest_ids<'a>(text: &str, known: &[&'a str]) -> Vec<&'a str> {
    let most = 2 + normal(text).chars().count() / 2;
    let contained = |plain: &str, text: &str| plain.contains(text) || text.contains(plain);
    ranked(text, known, contained)
        .into_iter()
        .filter(|(distance, _)| *distance <= most)
        .map(|(_, word)| word)
        .take(3)
        .collect()
}

/// Known words by distance; equal distances keep their order. One that is `related` is near however long its rest is.
fn ranked<'a>(text: &str, known: &[&'a str], related: impl Fn(&str, &str) -> bool) -> Vec<(usize, &'a str)> {
    if text.chars().count() > LONGEST {
        return Vec::new();
    }
    let text = normal(text);
    let mut ranked: Vec<(usize, &'a str)> = known
        .iter()
        .map(|word| {
            let plain = normal(word);
            let related = text.len() > 2 && related(&plain, &text);
            let distance = osa_distance(&text, &plain);
            (if related { distance.min(1 + distance / 4) } else { distance }, *word)
        })
        .collect();
    ranked.sort_by_key(|(distance, _)| *distance);
    ranked
}

/// Lower case, without the publisher of a Hub id, with `-` for every separator.
fn normal(text: &str) -> String {
    let name = text.trim().rsplit('/').next().unwrap_or(text);
    name.to_lowercase().chars().map(|c| if c == '_' || c == ' ' { '-' } else { c }).collect()
}

/// `text` in quotes, fit for a message: cut when it is long, with control characters escaped.
pub fn quoted(text: &str) -> String {
    const MOST: usize = 48;
    if text.chars().count() > MOST {
        let start: String = text.chars().take(MOST).collect();
        format!("{start:?}...")
    } else {
        format!("{text:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let known = ["batch", "seq", "attention_mask", "target_seq"];
        assert_eq!(nearest("bacth", &known), Some("batch"));
        assert_eq!(nearest("attention-mask", &known), Some("attention_mask"));
        assert_eq!(nearest("Batch", &known), Some("batch"));
        assert_eq!(nearest("attention", &known), Some("attention_mask"));
        assert_eq!(nearest("batch_of_samples", &known), None);
        assert_eq!(nearest("wheelbase", &known), None);
        assert_eq!(nearest("", &[]), None);
    }

    #[test]
    fn ids_are_found_from_how_people_write_them() {
        let known = ["rtx-5070", "rtx-5070-ti", "rtx-5070-ti-laptop", "a100-80gb", "h200"];
        assert_eq!(nearest_ids("RTX 5070 Ti", &known).first(), Some(&"rtx-5070-ti"));
        assert!(nearest_ids("5070", &known).contains(&"rtx-5070"));
        assert_eq!(nearest_ids("a100", &known).first(), Some(&"a100-80gb"));
        assert_eq!(nearest_ids("meta/H200", &known).first(), Some(&"h200"));
        assert!(nearest_ids("abacus of the ancients", &known).is_empty());
        assert!(nearest_ids(&"x".repeat(1 << 20), &known).is_empty());
    }

    #[test]
    fn quoting_is_short_and_harmless() {
        assert_eq!(quoted("fp8"), "\"fp8\"");
        assert_eq!(quoted("\u{1b}[2J"), "\"\\u{1b}[2J\"");
        assert!(quoted(&"x".repeat(10_000)).len() < 60);
    }
}
