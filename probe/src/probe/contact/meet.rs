//! Going through the entries: each on the card, on the twin and by the estimate; what it leaves lies in a folder of its own.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_core::measurement::Outcome;
use plimsoll_core::snapshot::Snapshot;
use serde::Serialize;

use super::beside::{Beside, Side};
use super::twin::Twins;
use crate::exit::Failure;
use crate::probe::Where;
use crate::probe::bench::{Bench, Trial};
use crate::probe::entry::Entry;
use crate::probe::figures::{self, Figures};
use crate::probe::suite::budget::Clock;
use crate::probe::suite::plan::{self, Decision, Plan};
use crate::probe::survey::Survey;
use crate::records::{self, replace};

/// What became of one entry.
#[derive(Debug, Serialize)]
pub struct Met {
    /// Its name, and that of its folder.
    pub name: String,
    /// What became of it.
    #[serde(flatten)]
    pub end: End,
}

/// What became of one entry.
#[derive(Debug, Serialize)]
#[serde(tag = "status", content = "result", rename_all = "snake_case")]
pub enum End {
    /// It ran on the card.
    Met(Box<Beside>),
    /// It was left out, and why.
    Skipped(String),
    /// It could not be measured, and why.
    Failed(String),
    /// It was not come to, and why.
    NotReached(&'static str),
}

impl Met {
    /// Whether all three said the same.
    pub fn agrees(&self) -> bool {
        matches!(&self.end, End::Met(beside) if beside.agrees())
    }

    /// Whether all three asked for the same, and their figures are not the same for all that.
    pub fn lies_elsewhere(&self) -> bool {
        matches!(&self.end, End::Met(beside) if !beside.agrees() && beside.asks_alike)
    }
}

/// What to go through, and how.
#[derive(Clone, Copy, Debug)]
pub struct Meeting<'a> {
    /// The entries.
    pub entries: &'a [Entry],
    /// The machine at hand.
    pub survey: &'a Survey,
    /// Where and how workers run.
    pub place: &'a Where,
    /// No entry begins that would go past it.
    pub budget: Option<Duration>,
    /// Where everything goes.
    pub folder: &'a Path,
}

/// Goes through the entries in order; `told` hears of each as soon as it is over.
///
/// # Errors
/// When a file cannot be written, and whatever `told` fails with. An entry that cannot be measured is told and passed by.
pub fn meet(
    meeting: &Meeting<'_>,
    bench: &mut dyn Bench,
    twins: &mut dyn Twins,
    told: &mut dyn FnMut(Met) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut clock = Clock::default();
    let mut halt: Option<&'static str> = None;
    for (number, entry) in meeting.entries.iter().enumerate() {
        let mut note = |end| told(Met { name: entry.name.clone(), end });
        let plan = match plan::plan(entry, meeting.survey, meeting.place.limit)? {
            Decision::Run(plan) => plan,
            Decision::Skip(reason) => {
                note(End::Skipped(reason))?;
                continue;
            }
        };
        let expected = entry.expected(false);
        halt = halt.or_else(|| bench.stopped().then_some("interrupted"));
        halt = halt.or_else(|| clock.past(meeting.budget, expected).then_some("the time is over"));
        if let Some(reason) = halt {
            note(End::NotReached(reason))?;
            continue;
        }
        bench.say(&format!("{} of {}: {}, on the card", number + 1, meeting.entries.len(), entry.name));
        let start = Instant::now();
        let folder = meeting.folder.join(&entry.name);
        let end = one(&plan, &folder, bench, twins)?;
        note(end)?;
        clock.add(start.elapsed(), expected);
    }
    Ok(())
}

/// One entry, three times.
fn one(plan: &Plan, folder: &Path, bench: &mut dyn Bench, twins: &mut dyn Twins) -> Result<End, Failure> {
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))?;
    let scenario = folder.join("scenario.json");
    let text = format!("{:#}\n", plan.scenario.to_value());
    replace(&scenario, text.as_bytes()).map_err(|error| unwritable(&scenario, &error))?;

    let history = folder.join("card.pickle");
    let trial =
        Trial { scenario: &plan.scenario, limit: plan.limit, adapt: plan.adapt, snapshot: Some(history.as_path()) };
    let record = match bench.measure(&trial) {
        Ok(record) => record,
        Err(_) if bench.stopped() => return Ok(End::NotReached("interrupted")),
        Err(failure) => return Ok(End::Failed(failure.to_string())),
    };
    records::write(&folder.join("card.json"), &record)?;
    let figures = Figures::of(&record);
    bench.say(&format!(
        "  {}, process {}; now its twin",
        figures::outcome(figures.outcome),
        figures::size(figures.measured.process)
    ));
    match record.attempts.last().map(|attempt| attempt.outcome) {
        Some(Outcome::Interrupted) => return Ok(End::NotReached("interrupted")),
        Some(Outcome::Failed) | None if bench.stopped() => return Ok(End::NotReached("interrupted")),
        Some(Outcome::Failed) | None => {
            let why = figures.failure.clone().unwrap_or_else(|| "the worker did not say why".to_owned());
            return Ok(End::Failed(why));
        }
        Some(Outcome::Finished | Outcome::OutOfMemory | Outcome::Limit) => {}
    }
    let card = Side { record, snapshot: packed(&history, bench) };
    let twin = match twins.rehearse(plan, folder) {
        Ok(record) => Ok(Side { record, snapshot: packed(&folder.join("twin.pickle"), bench) }),
        Err(_) if bench.stopped() => Err("interrupted".to_owned()),
        Err(failure) => Err(failure.to_string()),
    };
    Ok(End::Met(Box::new(Beside::of(&card, twin.as_ref().map_err(Clone::clone)))))
}

/// Reads a history, and packs the file: it repeats itself.
fn packed(path: &Path, bench: &mut dyn Bench) -> Option<Snapshot> {
    let bytes = fs::read(path).ok()?;
    let snapshot = match Snapshot::read(&bytes) {
        Ok(snapshot) => Some(snapshot),
        Err(error) => {
            bench.say(&format!("  {}: {}", path.display(), error.problem));
            None
        }
    };
    let pack = || -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(".gz");
        let mut encoder = GzEncoder::new(File::create(PathBuf::from(name))?, Compression::default());
        encoder.write_all(&bytes)?;
        encoder.finish()?.sync_all()?;
        fs::remove_file(path)
    };
    // Unpacked it is as good, only larger.
    if let Err(error) = pack() {
        bench.say(&format!("  {} stays unpacked: {error}", path.display()));
    }
    snapshot
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Environment {
        problem: format!("cannot write {}: {error}", path.display()),
        hint: "see that the disk has room; what is in the folder stays".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use plimsoll_core::{Bytes, Measurement, Scenario};

    use super::*;
    use crate::probe::bench::paper::Paper;
    use crate::probe::entry;
    use crate::probe::suite::{ENTRIES, plan::tests::survey};

    #[derive(Debug, clap::Parser)]
    struct Flags {
        #[command(flatten)]
        place: Where,
    }

    /// A twin that does what the card does, or a little more.
    struct Echo {
        paper: Paper,
        more: u64,
    }

    impl Twins for Echo {
        fn rehearse(&mut self, plan: &Plan, _: &Path) -> Result<Measurement, Failure> {
            let trial = Trial { scenario: &plan.scenario, limit: plan.limit, adapt: plan.adapt, snapshot: None };
            let mut record = self.paper.measure(&trial)?;
            for phase in &mut record.phases {
                phase.peak_allocated = phase.peak_allocated.map(|bytes| bytes + Bytes::new(self.more));
            }
            Ok(record)
        }
    }

    fn small(_: &Scenario) -> Option<u64> {
        Some(1 << 30)
    }

    fn run(bench: &mut Paper, more: u64, folder: &Path) -> Vec<Met> {
        let place = Flags::parse_from(["probe"]).place;
        let entries: Vec<Entry> =
            entry::read(ENTRIES).unwrap().into_iter().filter(|e| e.over.is_none()).take(4).collect();
        let (survey, mut told) = (survey(12), Vec::new());
        let meeting = Meeting { entries: &entries, survey: &survey, place: &place, budget: None, folder };
        let mut twins = Echo { paper: Paper::card(small), more };
        meet(&meeting, bench, &mut twins, &mut |met| {
            told.push(met);
            Ok(())
        })
        .unwrap();
        told
    }

    #[test]
    fn every_entry_leaves_a_folder_and_what_fails_is_passed_by() {
        let folder = tempfile::tempdir().unwrap();
        let told = run(&mut Paper::card(small), 0, folder.path());
        let twin = |met: &Met| matches!(&met.end, End::Met(beside) if beside.twin_agrees);
        assert!(told.len() == 4 && told.iter().all(twin), "{told:?}");
        for met in &told {
            assert!(folder.path().join(&met.name).join("card.json").is_file());
            assert!(folder.path().join(&met.name).join("scenario.json").is_file());
        }
        let told = run(&mut Paper::card(small), 512, folder.path());
        assert!(!told.iter().any(twin), "{told:?}");
        let told =
            run(&mut Paper::card(|scenario| (scenario.input.batch != 4096).then_some(1 << 30)), 0, folder.path());
        assert!(matches!(told[0].end, End::Failed(_)) && told.iter().any(twin), "{told:?}");
    }

    #[test]
    fn ctrl_c_leaves_the_rest_and_keeps_what_was_measured() {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = Paper { stop_in: Some(3), ..Paper::card(small) };
        let told = run(&mut bench, 0, folder.path());
        assert!(matches!(told[1].end, End::Met(_)));
        assert!(told[2..].iter().all(|met| matches!(met.end, End::NotReached("interrupted"))), "{told:?}");
    }
}
