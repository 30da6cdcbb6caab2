//! `plimsoll probe suite --fits`: the largest micro-batch of ten scenarios under one cap, held against its prediction.

use std::time::Instant;

use plimsoll_core::measurement::DeviceKind;
use plimsoll_core::{Bytes, Measurement, Scenario};
use serde_json::{Value, json};

use super::budget::Clock;
use super::entries::Suite;
use super::plan::{self, Decision};
use crate::exit::Failure;
use crate::probe::bench::Bench;
use crate::probe::entry::Entry;
use crate::probe::fit::{Fit, Start, find_largest};
use crate::probe::survey::Survey;
use crate::records::Store;
use crate::view::{Paint, grouped, wrapped};

/// The cap, on a card that has as much: what the project promises about largest batches is said of it.
pub const CAP: Bytes = Bytes::from_gib(12);

/// What came of one scenario.
#[derive(Debug)]
pub struct Fitted {
    /// The entry's name.
    pub name: String,
    /// The answer, or why there is none.
    pub fit: Result<Fit, String>,
}

/// Looks for every entry's largest micro-batch, beginning with what earlier trials left in the store.
///
/// # Errors
/// When the store cannot be read or a record not be kept.
pub fn fit_all(suite: &Suite<'_>, bench: &mut dyn Bench, store: &Store) -> Result<Vec<Fitted>, Failure> {
    let small = suite.survey.device.kind == DeviceKind::Cpu;
    let mut clock = Clock::default();
    let mut results = Vec::new();
    let mut halt: Option<&str> = None;
    for (number, entry) in suite.entries.iter().enumerate() {
        let mut note = |fit| results.push(Fitted { name: entry.name.clone(), fit });
        let limit = suite.limit.or(if small { entry.small_limit() } else { cap(suite.survey) });
        let scenario = match one_sample(entry, suite.survey, limit)? {
            Ok(scenario) => scenario,
            Err(reason) => {
                note(Err(format!("skipped: {reason}")));
                continue;
            }
        };
        let known: Vec<Measurement> = store
            .list()?
            .records
            .into_iter()
            .map(|(_, record)| record)
            .filter(|record| plan::same_place(record, limit, suite.survey) && same_but_batch(record, &scenario))
            .collect();
        let expected = entry.expected(small);
        halt = halt.or_else(|| bench.stopped().then_some("interrupted"));
        halt = halt.or_else(|| clock.past(suite.budget, expected).then_some("the time is over"));
        if let Some(reason) = halt {
            note(Err(format!("not reached: {reason}")));
            continue;
        }
        bench.say(&format!("{} of {}: {}", number + 1, suite.entries.len(), entry.name));
        let begun = Instant::now();
        // A card that torch could not tell the memory of is asked about when the first trial has run.
        let device = Some(&suite.survey.device).filter(|device| device.total > Bytes::ZERO || small);
        match find_largest(&Start { scenario: &scenario, limit, device, known: &known }, bench, store) {
            Ok(fit) if fit.largest.is_none() => note(Err("not reached: interrupted".to_owned())),
            Ok(fit) => note(Ok(fit)),
            Err(failure) => note(Err(format!("failed: {failure}"))),
        }
        clock.add(begun.elapsed(), expected);
    }
    Ok(results)
}

/// A card that has less is its own cap.
fn cap(survey: &Survey) -> Option<Bytes> {
    (survey.device.total > CAP).then_some(CAP)
}

/// The entry's scenario if one sample of it can run here at all.
fn one_sample(entry: &Entry, survey: &Survey, limit: Option<Bytes>) -> Result<Result<Scenario, String>, Failure> {
    Ok(match plan::plan(entry, survey, limit)? {
        Decision::Run(plan) => Ok(plan.scenario),
        Decision::Skip(reason) => Err(reason),
    })
}

fn same_but_batch(record: &Measurement, scenario: &Scenario) -> bool {
    let mut theirs = record.scenario.clone();
    let ours = scenario.to_value();
    if let Some(input) = theirs.get_mut("input").and_then(Value::as_object_mut) {
        input.insert("batch".to_owned(), ours["input"]["batch"].clone());
    }
    theirs == ours
}

/// For `--format json`.
pub fn value(results: &[Fitted]) -> Value {
    let value = |one: &Fitted| match &one.fit {
        Ok(fit) => {
            let mut value = fit.to_value();
            value["name"] = json!(one.name);
            value["off"] = json!(fit.off());
            value
        }
        Err(reason) => json!({ "name": one.name, "reason": reason }),
    };
    let (within, of) = within_one(results);
    json!({
        "schema": 1, "fits": results.iter().map(value).collect::<Vec<_>>(), "within_one": within, "compared": of,
    })
}

/// In how many the prediction was right within one sample, and how many could be compared.
fn within_one(results: &[Fitted]) -> (usize, usize) {
    let compared = results.iter().filter_map(|one| one.fit.as_ref().ok()).filter(|fit| fit.comparable);
    let off: Vec<u64> = compared.filter_map(Fit::off).collect();
    (off.iter().filter(|off| **off <= 1).count(), off.len())
}

/// The whole answer for people.
pub fn table(results: &[Fitted], paint: Paint) -> String {
    let head = "  scenario                                  largest  predicted  trials   blind";
    let mut out = format!("\n{}\n", paint.quiet(head));
    for one in results {
        match &one.fit {
            Ok(fit) => {
                let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), grouped);
                out.push_str(&format!(
                    "  {:<38} {:>10} {:>10} {:>7} {:>7}\n",
                    one.name,
                    number(fit.largest),
                    number(fit.predicted),
                    fit.trials.len(),
                    fit.blind().map_or_else(|| "-".to_owned(), |n| n.to_string()),
                ));
            }
            Err(reason) => {
                let lines = wrapped(reason, 36).join(&format!("\n{:43}", ""));
                out.push_str(&format!("  {:<38}   {}\n", one.name, paint.quiet(&lines)));
            }
        }
    }
    let verdict = match within_one(results) {
        (_, 0) => "Nothing to compare: the estimate speaks of CUDA cards.".to_owned(),
        (within, of) => format!("The largest micro-batch is within 1 of the prediction for {within} of {of}."),
    };
    out.push_str(&format!("\n  {verdict}\n"));
    out
}

#[cfg(test)]
mod tests {
    use plimsoll_core::estimate::{Run, Verdict};

    use super::*;
    use crate::probe::bench::paper::Paper;
    use crate::probe::entry;
    use crate::probe::suite::FITS;
    use crate::records::sample;

    /// What the engine says, on a card without end.
    /// Under the cap the allocator gives cached memory back before it gives up, and a larger batch may fit for that.
    fn by_engine(scenario: &Scenario) -> Option<u64> {
        let mut scenario = scenario.clone();
        scenario.device.memory = Some(CAP);
        scenario.device.load_line = None;
        let estimate = Run::new(&scenario).ok()?.into_estimate();
        Some(if estimate.verdict == Verdict::DoesNotFit { u64::MAX } else { estimate.peak.process.get() })
    }

    fn survey(gib: u64) -> Survey {
        let mut device = sample::record().device;
        device.total = Bytes::from_gib(gib);
        device.reserved = None;
        device.used_before = None;
        let has = ["transformers", "peft"].map(str::to_owned).to_vec();
        Survey { torch: "2.11.0".to_owned(), has, device, card: None }
    }

    #[test]
    fn under_the_cap_ten_answers_and_the_second_time_none_is_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let (entries, survey) = (entry::read(FITS).unwrap(), survey(24));
        assert_eq!(entries.len(), 10);
        let store = Store::at(folder.path());
        let suite = Suite { entries: &entries, survey: &survey, limit: None, budget: None };
        let mut bench = Paper { room: Bytes::from_gib(24), ..Paper::card(by_engine) };
        let results = fit_all(&suite, &mut bench, &store).unwrap();
        for one in &results {
            let fit = one.fit.as_ref().unwrap();
            assert!(fit.largest.is_some_and(|largest| largest > 0), "{}", one.name);
        }
        let (within, of) = within_one(&results);
        assert!(of == 10 && within >= 8, "{}", table(&results, Paint::with_colour(false)));
        let mut again = Paper { room: Bytes::from_gib(24), ..Paper::card(by_engine) };
        let second = fit_all(&suite, &mut again, &store).unwrap();
        assert!(again.tried.is_empty());
        let largest = |results: &[Fitted]| results.iter().map(|c| c.fit.as_ref().unwrap().largest).collect::<Vec<_>>();
        assert_eq!(largest(&results), largest(&second));
    }

    #[test]
    fn a_card_with_less_is_its_own_cap() {
        assert_eq!((cap(&survey(24)), cap(&survey(12)), cap(&survey(8))), (Some(CAP), None, None));
    }

    #[test]
    fn ctrl_c_leaves_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let (entries, survey) = (entry::read(FITS).unwrap(), survey(24));
        let suite = Suite { entries: &entries, survey: &survey, limit: None, budget: None };
        let mut bench = Paper { stop_in: Some(2), room: Bytes::from_gib(24), ..Paper::card(by_engine) };
        let results = fit_all(&suite, &mut bench, &Store::at(folder.path())).unwrap();
        assert_eq!(bench.tried.len(), 2);
        assert!(results[1..].iter().all(|one| one.fit.as_ref().unwrap_err().contains("interrupted")));
        let text = table(&results, Paint::with_colour(false));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
