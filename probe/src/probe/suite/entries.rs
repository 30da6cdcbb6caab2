//! Going through the suite: each entry measured once, whatever was measured before left alone.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_core::measurement::{DeviceKind, Outcome};
use plimsoll_core::{Bytes, Measurement};

use super::budget::Clock;
use super::plan::{self, Decision};
use crate::exit::Failure;
use crate::probe::bench::{Bench, Trial};
use crate::probe::entry::Entry;
use crate::probe::figures::{self, Figures};
use crate::probe::survey::Survey;
use crate::records::{self, Store};

/// What became of one entry.
#[derive(Debug)]
pub struct EntryResult {
    /// Its name.
    pub name: String,
    /// What became of it.
    pub end: EntryEnd,
    /// Where its record is.
    pub record: Option<PathBuf>,
}

/// What became of one entry.
#[derive(Clone, Debug)]
pub enum EntryEnd {
    /// It was measured now.
    Measured(Figures),
    /// It had been measured before.
    Before(Figures),
    /// It was left out, and why.
    Skipped(String),
    /// It could not be measured, and why.
    Failed(String),
    /// It was not come to, and why.
    NotReached(&'static str),
}

impl EntryResult {
    /// The figures, whenever they were taken.
    pub const fn figures(&self) -> Option<&Figures> {
        match &self.end {
            EntryEnd::Measured(figures) | EntryEnd::Before(figures) => Some(figures),
            _ => None,
        }
    }
}

/// What to go through, and how.
#[derive(Clone, Copy, Debug)]
pub struct Suite<'a> {
    /// The entries.
    pub entries: &'a [Entry],
    /// The machine at hand.
    pub survey: &'a Survey,
    /// The user's own hard cap.
    pub limit: Option<Bytes>,
    /// No entry begins that would go past it.
    pub budget: Option<Duration>,
}

/// Goes through the entries in order, keeping a record of each.
///
/// # Errors
/// When a record cannot be kept. An entry that cannot be measured is told and passed by.
pub fn measure(suite: &Suite<'_>, bench: &mut dyn Bench, store: &Store) -> Result<Vec<EntryResult>, Failure> {
    let known = store.list()?;
    for (path, why) in &known.broken {
        bench.say(&format!("Left alone: {} ({why})", path.display()));
    }
    let small = suite.survey.device.kind == DeviceKind::Cpu;
    let mut clock = Clock::default();
    let mut halt: Option<&'static str> = None;
    let mut results = Vec::new();
    for (number, entry) in suite.entries.iter().enumerate() {
        let mut note = |end, record| results.push(EntryResult { name: entry.name.clone(), end, record });
        let plan = match plan::plan(entry, suite.survey, suite.limit)? {
            Decision::Run(plan) => plan,
            Decision::Skip(reason) => {
                note(EntryEnd::Skipped(reason), None);
                continue;
            }
        };
        // What is known costs nothing: it is told even when the time is over.
        if let Some((path, record)) = known.records.iter().find(|(_, r)| plan::answers(r, &plan, suite.survey)) {
            note(EntryEnd::Before(Figures::of(record)), Some(path.clone()));
            continue;
        }
        halt = halt.or_else(|| bench.stopped().then_some("interrupted"));
        let expected = entry.expected(small);
        halt = halt.or_else(|| clock.past(suite.budget, expected).then_some("the time is over"));
        if let Some(reason) = halt {
            note(EntryEnd::NotReached(reason), None);
            continue;
        }
        bench.say(&format!("{} of {}: {}", number + 1, suite.entries.len(), entry.name));
        let start = Instant::now();
        let trial = Trial { scenario: &plan.scenario, limit: plan.limit, adapt: plan.adapt, snapshot: None };
        match bench.measure(&trial) {
            Ok(record) => {
                let figures = Figures::of(&record);
                let path = records::tells(&record).then(|| store.keep_as(&file_name(entry, &record), &record));
                let path = path.transpose()?;
                bench.say(&format!(
                    "  {}, process {}",
                    figures::outcome(figures.outcome),
                    figures::size(figures.measured.process)
                ));
                let last = record.attempts.last().map(|attempt| attempt.outcome);
                let end = match (last, &figures.failure) {
                    (Some(Outcome::Interrupted), _) => EntryEnd::NotReached("interrupted"),
                    // Before its first attempt a worker that is stopped has none to call so.
                    (Some(Outcome::Failed) | None, _) if bench.stopped() => EntryEnd::NotReached("interrupted"),
                    (Some(Outcome::Failed) | None, why) => {
                        EntryEnd::Failed(why.clone().unwrap_or_else(|| "the worker did not say why".to_owned()))
                    }
                    _ => EntryEnd::Measured(figures),
                };
                note(end, path);
            }
            Err(_) if bench.stopped() => note(EntryEnd::NotReached("interrupted"), None),
            Err(failure) => {
                bench.say(&format!("  failed: {failure}"));
                note(EntryEnd::Failed(failure.to_string()), None);
            }
        }
        clock.add(start.elapsed(), expected);
    }
    Ok(results)
}

/// The entry's name, and the beginning of the content's hash: no record takes another's place.
fn file_name(entry: &Entry, record: &Measurement) -> String {
    let id = record.content_id();
    format!("{}-{}.json", entry.name, id.get(..8).unwrap_or(&id))
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Scenario;

    use super::*;
    use crate::probe::bench::paper::Paper;
    use crate::probe::entry;
    use crate::probe::suite::ENTRIES;

    fn entries() -> Vec<Entry> {
        entry::read(ENTRIES).unwrap().into_iter().filter(|entry| entry.over.is_none()).take(5).collect()
    }

    fn survey() -> Survey {
        let mut device = records::sample::record().device;
        device.total = Bytes::from_gib(12);
        device.reserved = None;
        device.used_before = None;
        let has = ["transformers", "peft", "torchvision"].map(str::to_owned).to_vec();
        Survey { torch: "2.11.0".to_owned(), has, device, card: None }
    }

    fn small_enough(_: &Scenario) -> Option<u64> {
        Some(1 << 30)
    }

    fn run(bench: &mut Paper, store: &Store, budget: Option<Duration>) -> Vec<EntryResult> {
        let (entries, survey) = (entries(), survey());
        measure(&Suite { entries: &entries, survey: &survey, limit: None, budget }, bench, store).unwrap()
    }

    #[test]
    fn a_second_time_measures_nothing_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let mut bench = Paper::card(small_enough);
        let results = run(&mut bench, &store, None);
        assert!(results.iter().all(|one| matches!(one.end, EntryEnd::Measured(_))));
        assert_eq!((bench.tried.len(), store.list().unwrap().records.len()), (5, 5));
        let mut again = Paper::card(small_enough);
        let results = run(&mut again, &store, Some(Duration::ZERO));
        assert!(results.iter().all(|one| matches!(one.end, EntryEnd::Before(_))));
        assert_eq!(again.tried.len(), 0);
    }

    #[test]
    fn ctrl_c_between_and_within_entries_is_taken_up_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let mut bench = Paper { stop_in: Some(3), ..Paper::card(small_enough) };
        let results = run(&mut bench, &store, None);
        let done = results.iter().filter(|one| matches!(one.end, EntryEnd::Measured(_))).count();
        assert_eq!((done, bench.tried.len()), (2, 3));
        assert!(results[2..].iter().all(|one| matches!(one.end, EntryEnd::NotReached("interrupted"))));
        let mut again = Paper::card(small_enough);
        let results = run(&mut again, &store, None);
        assert_eq!(again.tried.len(), 3, "the interrupted one is measured again");
        assert!(results.iter().all(|one| one.figures().is_some()));
    }

    #[test]
    fn the_time_ends_before_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let mut bench = Paper::card(small_enough);
        let results = run(&mut bench, &store, Some(Duration::from_secs(1)));
        assert!(results.iter().all(|one| matches!(one.end, EntryEnd::NotReached("the time is over"))));
        assert!(bench.tried.is_empty());
    }

    #[test]
    fn a_failure_is_passed_by() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let mut bench = Paper::card(|_| None);
        let results = run(&mut bench, &store, None);
        assert!(results.iter().all(|one| matches!(one.end, EntryEnd::Failed(_))));
        assert_eq!(bench.tried.len(), 5);
        std::fs::write(folder.path().join("broken.json"), "{").unwrap();
        let mut again = Paper::card(small_enough);
        run(&mut again, &store, None);
        assert_eq!(again.tried.len(), 5, "a failure is no answer, and a broken file no hindrance");
    }
}
