//! `plimsoll probe suite --fits`: the largest micro-batch of ten scenarios under one cap, held against its prediction.

use std::time::Instant;

use plimsoll_core::measurement::DeviceKind;
use plimsoll_core::{Bytes, Measurement, Scenario};
use serde_json::{Value, json};

use super::budget::Clock;
use super::plan::{self, Decision};
use super::voyage::Chart;
use crate::exit::Failure;
use crate::probe::bench::Bench;
use crate::probe::entry::Entry;
use crate::probe::fit::{Fit, Start, hunt};
use crate::probe::survey::Survey;
use crate::records::Store;
use crate::view::{Paint, grouped, wrapped};

/// The cap, on a card that has as much: what the project promises about largest batches is said of it.
pub const CAP: Bytes = Bytes::from_gib(12);

/// What came of one scenario.
#[derive(Debug)]
pub struct Catch {
    /// The entry's name.
    pub name: String,
    /// The answer, or why there is none.
    pub fit: Result<Fit, String>,
}

/// Looks for every entry's largest micro-batch, beginning with what earlier trials left in the store.
///
/// # Errors
/// When the store cannot be read or a record not be kept.
pub fn fish(chart: &Chart<'_>, bench: &mut dyn Bench, store: &Store) -> Result<Vec<Catch>, Failure> {
    let small = chart.survey.device.kind == DeviceKind::Cpu;
    let mut clock = Clock::default();
    let mut catches = Vec::new();
    let mut halt: Option<&str> = None;
    for (number, entry) in chart.entries.iter().enumerate() {
        let mut land = |fit| catches.push(Catch { name: entry.name.clone(), fit });
        let limit = chart.limit.or(if small { entry.small_limit() } else { cap(chart.survey) });
        let scenario = match one_sample(entry, chart.survey, limit)? {
            Ok(scenario) => scenario,
            Err(reason) => {
                land(Err(format!("skipped: {reason}")));
                continue;
            }
        };
        let known: Vec<Measurement> = store
            .list()?
            .records
            .into_iter()
            .map(|(_, record)| record)
            .filter(|record| plan::same_place(record, limit, chart.survey) && same_but_batch(record, &scenario))
            .collect();
        let expected = entry.expected(small);
        halt = halt.or_else(|| bench.stopped().then_some("interrupted"));
        halt = halt.or_else(|| clock.past(chart.budget, expected).then_some("the time is over"));
        if let Some(reason) = halt {
            land(Err(format!("not reached: {reason}")));
            continue;
        }
        bench.say(&format!("{} of {}: {}", number + 1, chart.entries.len(), entry.name));
        let begun = Instant::now();
        // A card that torch could not tell the memory of is asked about when the first trial has run.
        let device = Some(&chart.survey.device).filter(|device| device.total > Bytes::ZERO || small);
        match hunt(&Start { scenario: &scenario, limit, device, known: &known }, bench, store) {
            Ok(fit) if fit.largest.is_none() => land(Err("not reached: interrupted".to_owned())),
            Ok(fit) => land(Ok(fit)),
            Err(failure) => land(Err(format!("failed: {failure}"))),
        }
        clock.add(begun.elapsed(), expected);
    }
    Ok(catches)
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
pub fn value(catches: &[Catch]) -> Value {
    let one = |catch: &Catch| match &catch.fit {
        Ok(fit) => {
            let mut value = fit.to_value();
            value["name"] = json!(catch.name);
            value["off"] = json!(fit.off());
            value
        }
        Err(reason) => json!({ "name": catch.name, "reason": reason }),
    };
    let (within, of) = within_one(catches);
    json!({
        "schema": 1, "fits": catches.iter().map(one).collect::<Vec<_>>(), "within_one": within, "compared": of,
    })
}

/// In how many the prediction was right within one sample, and how many could be compared.
fn within_one(catches: &[Catch]) -> (usize, usize) {
    let compared = catches.iter().filter_map(|catch| catch.fit.as_ref().ok()).filter(|fit| fit.comparable);
    let off: Vec<u64> = compared.filter_map(Fit::off).collect();
    (off.iter().filter(|off| **off <= 1).count(), off.len())
}

/// The whole answer for people.
pub fn table(catches: &[Catch], paint: Paint) -> String {
    let head = "  scenario                                  largest  predicted  trials   blind";
    let mut out = format!("\n{}\n", paint.quiet(head));
    for catch in catches {
        match &catch.fit {
            Ok(fit) => {
                let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), grouped);
                out.push_str(&format!(
                    "  {:<38} {:>10} {:>10} {:>7} {:>7}\n",
                    catch.name,
                    number(fit.largest),
                    number(fit.predicted),
                    fit.trials.len(),
                    fit.blind().map_or_else(|| "-".to_owned(), |n| n.to_string()),
                ));
            }
            Err(reason) => {
                let lines = wrapped(reason, 36).join(&format!("\n{:43}", ""));
                out.push_str(&format!("  {:<38}   {}\n", catch.name, paint.quiet(&lines)));
            }
        }
    }
    let verdict = match within_one(catches) {
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
        Survey { torch: "2.11.0".to_owned(), has, device }
    }

    #[test]
    fn under_the_cap_ten_answers_and_the_second_time_none_is_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let (entries, survey) = (entry::read(FITS).unwrap(), survey(24));
        assert_eq!(entries.len(), 10);
        let store = Store::at(folder.path());
        let chart = Chart { entries: &entries, survey: &survey, limit: None, budget: None };
        let mut bench = Paper { room: Bytes::from_gib(24), ..Paper::card(by_engine) };
        let catches = fish(&chart, &mut bench, &store).unwrap();
        for catch in &catches {
            let fit = catch.fit.as_ref().unwrap();
            assert!(fit.largest.is_some_and(|largest| largest > 0), "{}", catch.name);
        }
        let (within, of) = within_one(&catches);
        assert!(of == 10 && within >= 8, "{}", table(&catches, Paint::with_colour(false)));
        let mut again = Paper { room: Bytes::from_gib(24), ..Paper::card(by_engine) };
        let second = fish(&chart, &mut again, &store).unwrap();
        assert!(again.tried.is_empty());
        let largest = |catches: &[Catch]| catches.iter().map(|c| c.fit.as_ref().unwrap().largest).collect::<Vec<_>>();
        assert_eq!(largest(&catches), largest(&second));
    }

    #[test]
    fn a_card_with_less_is_its_own_cap() {
        assert_eq!((cap(&survey(24)), cap(&survey(12)), cap(&survey(8))), (Some(CAP), None, None));
    }

    #[test]
    fn ctrl_c_leaves_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let (entries, survey) = (entry::read(FITS).unwrap(), survey(24));
        let chart = Chart { entries: &entries, survey: &survey, limit: None, budget: None };
        let mut bench = Paper { stop_in: Some(2), room: Bytes::from_gib(24), ..Paper::card(by_engine) };
        let catches = fish(&chart, &mut bench, &Store::at(folder.path())).unwrap();
        assert_eq!(bench.tried.len(), 2);
        assert!(catches[1..].iter().all(|catch| catch.fit.as_ref().unwrap_err().contains("interrupted")));
        let text = table(&catches, Paint::with_colour(false));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
