//! The allocator's history of a rehearsal as a ledger: what `plimsoll inspect` reads.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::ledger::{Birth, DType, GradFnId, Kind, Ledger, ModuleId, Names, OpId, PhaseName, Recorder};
use plimsoll_core::snapshot::{Action, Course, Device, Snapshot, StackId, Storage};

use super::peaks::{Mark, Part, Peaks};
use crate::exit::Failure;
use crate::ledger_file;

/// Most phases of a file (`docs/ledger.md`), less one for what was before the first.
const PHASES: usize = 4095;
/// Longest name of an op, in bytes.
const NAME: usize = 256;

/// Writes a ledger for each process that used a card, of the card it used most: the first to `path`, the others beside it with
/// their number in the name. Answers what could not be written.
///
/// # Errors
/// A file that cannot be written.
pub fn write(path: &Path, left: &Path, peaks: &Peaks) -> Result<Vec<String>, Failure> {
    let mut problems = Vec::new();
    let mut written = 0;
    for (pid, marks) in peaks.marks() {
        let read = fs::read(left.join(format!("{pid}.pickle"))).map_err(|error| error.to_string());
        let snapshot = read.and_then(|bytes| Snapshot::read(&bytes).map_err(|error| error.problem));
        let snapshot = match snapshot {
            Ok(snapshot) => snapshot,
            Err(problem) => {
                problems.push(format!("no ledger of process {pid}: {problem}"));
                continue;
            }
        };
        let Some(device) = snapshot.busiest().filter(|device| !device.trace.is_empty()) else {
            problems.push(format!("no ledger of process {pid}: this allocator writes no history"));
            continue;
        };
        let none = Vec::new();
        let ledger = ledger(&snapshot, device, marks.get(&device.index).unwrap_or(&none));
        ledger_file::write(&if written == 0 { path.to_owned() } else { beside(path, pid) }, &ledger)?;
        written += 1;
    }
    Ok(problems)
}

/// `run-4711.json.gz`.
fn beside(path: &Path, pid: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, ending) =
        name.split_once('.').map_or((&*name, String::new()), |(stem, rest)| (stem, format!(".{rest}")));
    path.with_file_name(format!("{stem}-{pid}{ending}"))
}

/// A stretch of the history: a part of a step, from this event on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    at: usize,
    part: Part,
    step: u64,
}

/// The history as a ledger. Why a storage exists shows from outside by when it came and went, and so its kind is told.
fn ledger(snapshot: &Snapshot, device: &Device, marks: &[Mark]) -> Ledger {
    let stretches = stretches(device, marks);
    let course = Course::of(device);
    let mut births: HashMap<usize, &Storage> = HashMap::new();
    let mut deaths: HashMap<usize, usize> = HashMap::new();
    for storage in &course.storages {
        if let Some(from) = storage.from {
            births.insert(from, storage);
            deaths.extend(storage.to.map(|to| (to, from)));
        }
    }
    let mut recorder = Recorder::new(Names::own(Vec::new()), Names::own(vec![String::new()]));
    recorder.module(ModuleId::ROOT, Cow::Borrowed(""), None);
    let mut ops: HashMap<StackId, OpId> = HashMap::new();
    let mut ids: HashMap<usize, u32> = HashMap::new();
    let mut next = stretches.iter().peekable();
    for at in 0..device.trace.len() {
        while let Some(stretch) = next.next_if(|stretch| stretch.at <= at) {
            let name = match stretch.part {
                Part::Forward => PhaseName::Forward,
                Part::Backward => PhaseName::Backward,
                Part::Optimizer => PhaseName::Optimizer,
            };
            recorder.phase(name, Some(u32::try_from(stretch.step).unwrap_or(u32::MAX)), None);
        }
        if let Some(storage) = births.get(&at) {
            let op =
                *ops.entry(storage.stack).or_insert_with(|| recorder.name_op(&short(&snapshot.origin(storage.stack))));
            let id = recorder.birth(Birth {
                bytes: storage.size.get(),
                kind: kind(storage, &stretches),
                op,
                grad_fn: GradFnId::default(),
                module: ModuleId::ROOT,
                // What lies in it PyTorch does not tell.
                dtype: DType::UInt8,
                sizes: &[storage.size.get()],
                owner: None,
            });
            ids.insert(at, id);
        }
        if let Some(id) = deaths.get(&at).and_then(|from| ids.get(from)) {
            recorder.death(*id);
        }
    }
    recorder.finish()
}

/// What a file takes for a name.
fn short(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut end = plain.len().min(NAME);
    while !plain.is_char_boundary(end) {
        end -= 1;
    }
    plain[..end].to_owned()
}

/// Where each mark stands among the events: where as many came and went as it says. What is empty is left out.
fn stretches(device: &Device, marks: &[Mark]) -> Vec<Stretch> {
    let mut stretches = vec![Stretch { at: 0, part: Part::Forward, step: 1 }];
    let (mut came, mut gone, mut at) = (0, 0, 0);
    for mark in marks.iter().take(PHASES) {
        while let Some(entry) = device.trace.get(at).filter(|_| came < mark.0 || gone < mark.1) {
            came += u64::from(entry.action == Action::Alloc);
            gone += u64::from(entry.action == Action::FreeRequested);
            at += 1;
        }
        // Events that neither came nor went stand between two: they belong to what follows.
        let stretch = Stretch { at, part: mark.2, step: mark.3 };
        match stretches.last_mut() {
            Some(last) if last.at == at => *last = stretch,
            _ => stretches.push(stretch),
        }
    }
    stretches
}

/// Why a storage exists, by when it came and how long it stayed.
fn kind(storage: &Storage, stretches: &[Stretch]) -> Kind {
    let of = |event: usize| stretches.partition_point(|stretch| stretch.at <= event).saturating_sub(1);
    let Some(born) = storage.from.map(of) else { return Kind::Forward };
    let died = storage.to.map(of);
    let stays = died != Some(born);
    let part = |index: usize| stretches.get(index).map_or(Part::Forward, |stretch| stretch.part);
    match part(born) {
        Part::Backward if stays => Kind::Gradient,
        Part::Backward => Kind::Backward,
        Part::Optimizer if stays => Kind::OptimizerState,
        Part::Optimizer => Kind::Optimizer,
        Part::Forward => {
            let updated = stretches.iter().position(|stretch| stretch.part == Part::Optimizer);
            let model = born == 0 && updated.map_or(died.is_none(), |first| died.is_none_or(|died| died > first));
            match died {
                _ if model => Kind::Parameter,
                Some(died) if stays && part(died) == Part::Backward => Kind::Saved,
                _ => Kind::Forward,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Bytes;
    use plimsoll_core::snapshot::Entry;

    use super::*;

    /// Comes (`+n`) and goes (`-n`), by address.
    fn device(events: &[i64]) -> Device {
        let entry = |event: &i64| Entry {
            action: if *event > 0 { Action::Alloc } else { Action::FreeRequested },
            address: event.unsigned_abs(),
            size: Bytes::new(event.unsigned_abs() * 512),
            time: 0,
            stack: StackId::default(),
        };
        Device { trace: events.iter().map(entry).collect(), ..Device::default() }
    }

    #[test]
    fn a_storage_is_what_its_time_says() {
        // A weight, an activation that is kept and one that is not; a gradient and a temporary; a state and a temporary.
        let device = device(&[1, 2, 3, -3, 4, 5, -5, -2, 6, 7, -7, -4]);
        let marks = [
            Mark(3, 1, Part::Backward, 1),
            Mark(5, 3, Part::Forward, 1),
            Mark(5, 3, Part::Optimizer, 1),
            Mark(7, 4, Part::Forward, 2),
        ];
        let stretches = stretches(&device, &marks);
        let ats: Vec<(usize, Part)> = stretches.iter().map(|stretch| (stretch.at, stretch.part)).collect();
        assert_eq!(ats, [(0, Part::Forward), (4, Part::Backward), (8, Part::Optimizer), (11, Part::Forward)]);
        let course = Course::of(&device);
        let kinds: Vec<Kind> = course.storages.iter().map(|storage| kind(storage, &stretches)).collect();
        assert_eq!(
            kinds,
            [
                Kind::Parameter,
                Kind::Saved,
                Kind::Forward,
                Kind::Gradient,
                Kind::Backward,
                Kind::OptimizerState,
                Kind::Optimizer
            ]
        );
    }

    #[test]
    fn names_fit_their_file() {
        assert_eq!(beside(Path::new("/a/run.json.gz"), 7), Path::new("/a/run-7.json.gz"));
        assert_eq!(beside(Path::new("run"), 7), Path::new("run-7"));
        assert_eq!(short(&"ä".repeat(200)).len(), 256);
        assert_eq!(short("a\nb"), "a b");
    }
}
