//! The suite's result as text and as JSON.

use serde_json::{Value, json};

use super::entries::{EntryEnd, EntryResult};
use crate::probe::figures::{difference, duration, outcome, size};
use crate::view::{Paint, fit, wrapped};

/// Median, 95th percentile and worst of the differences of one kind of peak, in percent, without their signs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// How many.
    pub count: usize,
    /// Half are below it.
    pub median: f64,
    /// 95 % are at or below it.
    pub most: f64,
    /// The largest.
    pub worst: f64,
}

/// The spread of these differences; `None` of none. Percentiles by nearest rank, which is always one of the values.
pub fn spread(differences: &[f64]) -> Option<Spread> {
    let mut sorted: Vec<f64> = differences.iter().map(|d| d.abs()).collect();
    sorted.sort_by(f64::total_cmp);
    let rank = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    Some(Spread { count: sorted.len(), median: rank(50)?, most: rank(95)?, worst: *sorted.last()? })
}

/// The spread of each kind of peak over all entries.
pub fn spreads(results: &[EntryResult]) -> Vec<(&'static str, Spread)> {
    let mut spreads = Vec::new();
    for kind in ["allocated", "reserved", "process"] {
        let figures = results.iter().filter_map(EntryResult::figures).flat_map(|figures| figures.pairs());
        let all: Vec<f64> = figures.filter(|(name, ..)| *name == kind).map(|(_, m, p)| difference(m, p)).collect();
        spreads.extend(spread(&all).map(|spread| (kind, spread)));
    }
    spreads
}

/// For `--format json`.
pub fn value(results: &[EntryResult]) -> Value {
    let value = |one: &EntryResult| {
        let (status, reason) = match &one.end {
            EntryEnd::Measured(_) => ("measured", None),
            EntryEnd::Before(_) => ("measured before", None),
            EntryEnd::Skipped(reason) => ("skipped", Some(reason.as_str())),
            EntryEnd::Failed(reason) => ("failed", Some(reason.as_str())),
            EntryEnd::NotReached(reason) => ("not reached", Some(*reason)),
        };
        json!({
            "name": one.name, "status": status, "reason": reason, "figures": one.figures().map(|f| f.to_value()),
            "record": one.record.as_ref().map(|path| path.display().to_string()),
        })
    };
    let spreads: serde_json::Map<String, Value> = spreads(results)
        .into_iter()
        .map(|(kind, s)| {
            let row = json!({ "count": s.count, "median_percent": s.median, "p95_percent": s.most, "worst_percent": s.worst });
            (kind.to_owned(), row)
        })
        .collect();
    json!({ "schema": 1, "entries": results.iter().map(value).collect::<Vec<_>>(), "differences": spreads })
}

/// The whole answer for people.
pub fn table(results: &[EntryResult], paint: Paint) -> String {
    let head = "  entry                        allocated  differs     process  differs  a sample";
    let mut out = format!("\n{}\n", paint.quiet(head));
    for one in results {
        out.push_str(&row(one, paint));
    }
    out.push('\n');
    let spreads = spreads(results);
    if spreads.is_empty() {
        out.push_str("  Nothing to compare: the estimate speaks of CUDA cards.\n");
    } else {
        let head = "  measured beside predicted   entries    median   95th percentile      worst";
        out.push_str(&format!("{}\n", paint.quiet(head)));
        for (kind, s) in spreads {
            out.push_str(&format!(
                "  {kind:<25} {:>9} {:>7.2} % {:>15.2} % {:>8.2} %\n",
                s.count, s.median, s.most, s.worst
            ));
        }
    }
    let count = |what: fn(&EntryEnd) -> bool| results.iter().filter(|one| what(&one.end)).count();
    out.push_str(&format!(
        "\n  {} measured, {} measured before, {} skipped, {} failed, {} not reached\n",
        count(|end| matches!(end, EntryEnd::Measured(_))),
        count(|end| matches!(end, EntryEnd::Before(_))),
        count(|end| matches!(end, EntryEnd::Skipped(_))),
        count(|end| matches!(end, EntryEnd::Failed(_))),
        count(|end| matches!(end, EntryEnd::NotReached(_))),
    ));
    out
}

fn row(one: &EntryResult, paint: Paint) -> String {
    let name = fit(&one.name, 27);
    let reason = |word: &str, reason: &str| {
        let lines = wrapped(&format!("{word}{reason}"), 48).join(&format!("\n{:31}", ""));
        format!("  {name:<27}  {lines}\n")
    };
    let figures = match &one.end {
        EntryEnd::Measured(figures) | EntryEnd::Before(figures) => figures,
        EntryEnd::Skipped(why) => return paint.quiet(&reason("skipped: ", why)),
        EntryEnd::Failed(why) => return paint.signal(&reason("failed: ", why)),
        EntryEnd::NotReached(why) => return paint.quiet(&reason("not reached: ", why)),
    };
    if !figures.finished() {
        return reason("", outcome(figures.outcome));
    }
    let differs = |kind: &str| {
        let pair = figures.pairs().into_iter().find(|(name, ..)| *name == kind);
        pair.map_or_else(
            || "-".to_owned(),
            |(_, measured, predicted)| format!("{:+.2} %", difference(measured, predicted)),
        )
    };
    format!(
        "  {name:<27} {:>10} {:>8} {:>11} {:>8} {:>9}\n",
        size(figures.measured.allocated),
        differs("allocated"),
        size(figures.measured.process),
        differs("process"),
        duration(figures.sample_micros),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::figures::Figures;
    use crate::records::sample;

    #[test]
    fn percentiles_are_values() {
        let all: Vec<f64> = (1..=20).map(|n| if n % 2 == 0 { -f64::from(n) } else { f64::from(n) }).collect();
        assert_eq!(spread(&all), Some(Spread { count: 20, median: 10.0, most: 19.0, worst: 20.0 }));
        assert_eq!(spread(&[-3.0]), Some(Spread { count: 1, median: 3.0, most: 3.0, worst: 3.0 }));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn every_end_has_its_line() {
        let figures = Figures::of(&sample::record());
        let one = |name: &str, end| EntryResult { name: name.to_owned(), end, record: None };
        let results = [
            one("gpt2-fp32-adamw", EntryEnd::Measured(figures.clone())),
            one("an-entry-with-a-name-that-is-far-too-long-for-it", EntryEnd::Before(figures)),
            one("c", EntryEnd::Skipped("this Python has no torchvision; pip install torchvision".to_owned())),
            one("d", EntryEnd::Failed("the worker was killed".to_owned())),
            one("e", EntryEnd::NotReached("the time is over")),
        ];
        let text = table(&results, Paint::with_colour(false));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for words in [
            "1 measured, 1 measured before, 1 skipped, 1 failed, 1 not reached",
            "skipped: this Python has no torchvision",
            "not reached: the time is over",
            "allocated                         2 ",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let value = value(&results);
        assert_eq!(value["entries"][2]["status"], "skipped");
        assert_eq!(value["differences"]["process"]["count"], 2);
    }
}
