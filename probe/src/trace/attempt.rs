//! Every precision recorded at every point, with one choice of sizes.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use plimsoll_core::Error;
use plimsoll_core::ledger::hull::{
    Asked, Holds, Hull, Tape, Trial, Variant, fit, fit_whole, same_but_for_marks, same_program,
};

use super::CARDS;
use super::input::Given;
use super::points::Points;
use super::recorder::{Checkpoint, Recorder, Wanted};
use crate::exit::Failure;

/// What the model does where it is checkpointed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Under {
    /// Nothing that could be checkpointed was found.
    Nothing,
    /// The same program, stretches of which run again.
    Same,
    /// Another program, as its switch changes more than that.
    Another,
}

/// A model is recorded whole at one point and shortened at all of them where so many modules are left out by that: one recording more
/// is then less than what the others save.
const WORTH: u32 = 4;

/// How many recordings are looked at before the others are made.
const FEW: usize = 4;

/// What is being recorded.
#[derive(Debug)]
pub struct Attempt<'a> {
    recorders: &'a mut [Recorder],
    given: &'a Given,
    points: Points,
    hull: Hull,
    /// Whether modules that repeat are left out where sizes are learnt.
    shortens: bool,
    /// Whether what has just failed may have failed because of that.
    doubtful: bool,
    /// Recordings that were made to look at, and are needed again.
    kept: Vec<(String, Trial)>,
}

/// What tells a recording from others.
fn key(at: &[u64], wanted: &Wanted<'_>) -> String {
    format!("{at:?} {wanted:?}")
}

/// How many modules are left out of a shortened model.
fn left_out(trial: &Trial) -> u32 {
    trial.recording.repeats.iter().map(|(_, count, kept)| count - kept.len() as u32).sum()
}

fn nobody() -> Error {
    Error::new("trace", "nobody records", "report it")
}

impl<'a> Attempt<'a> {
    /// With these axes, nothing recorded yet.
    pub fn new(recorders: &'a mut [Recorder], asked: &Asked, given: &'a Given) -> Self {
        let hull = Hull::new(asked.clone());
        Self {
            recorders,
            given,
            points: Points::of(&hull.axes),
            hull,
            shortens: false,
            doubtful: false,
            kept: Vec::new(),
        }
    }

    /// The hull of these precisions, for these kinds of cards; of the model as it is, and of each of these variants.
    pub fn run(mut self, variants: &[Variant], precisions: &[&str], cards: &[(u8, u8)]) -> Result<Hull, Failure> {
        for variant in [Variant::default()].iter().chain(variants) {
            if !variant.is_plain() {
                eprintln!("With {variant}");
            }
            self.variant(variant, precisions, cards)?;
        }
        Ok(self.hull)
    }

    fn variant(&mut self, variant: &Variant, precisions: &[&str], cards: &[(u8, u8)]) -> Result<(), Failure> {
        // Without autocast the forward is in the dtype of the base, so that has the precision's.
        let suits = |precision: &&str| variant.base_dtype.is_none() || precision.ends_with("-amp");
        let precisions: Vec<&str> = precisions.iter().copied().filter(suits).collect();
        let Some((first, card)) = precisions.first().copied().zip(cards.first().copied()) else {
            let hint = "name one under autocast with --precision, fp16-amp or bf16-amp";
            return Err(Error::new("--also", format!("{variant} is of no precision that is recorded"), hint).into());
        };
        let looked = Wanted {
            variant,
            precision: first,
            card,
            direct: false,
            checkpoint: Checkpoint::Marked,
            beyond: false,
            shortened: false,
        };
        let under = match variant.compile {
            // The compiler decides itself what is computed again, and no module is called in what it makes.
            true => Under::Nothing,
            false => self.under(looked)?,
        };
        self.shortens &= !variant.compile;
        for precision in precisions {
            let mut open: Vec<(u8, u8)> = cards.to_vec();
            while let Some(card) = open.first().copied() {
                let checkpoint = if under == Under::Same { Checkpoint::Marked } else { Checkpoint::None };
                let wanted =
                    Wanted { variant, precision, card, direct: false, checkpoint, beyond: false, shortened: false };
                let same = self.tapes(wanted)?;
                self.checkpointed(wanted, under)?;
                // What has just been recorded is open no more.
                open.retain(|other| *other != card && !same.contains(other));
            }
        }
        Ok(())
    }

    /// Recordings, each by whichever recorder is free; of each what is printed of it. Where one ends its recorder, those behind it may be
    /// missing.
    fn record(
        &mut self,
        asked: &[(Vec<u64>, Wanted<'_>)],
        what: impl Fn(usize) -> String + Sync,
    ) -> Vec<Result<Trial, Failure>> {
        let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        let given = self.given;
        let work = |recorder: &mut Recorder| {
            let mut answers = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some((at, wanted)) = asked.get(index) else { break };
                let begun = Instant::now();
                recorder.ask(given, at, *wanted);
                let answer = recorder.answer(at);
                let checkpointed = if wanted.checkpoint == Checkpoint::Real { ", checkpointed" } else { "" };
                let shortened = if wanted.shortened { ", shortened," } else { "" };
                let (what, at) = (what(index), given.at(at));
                eprintln!(
                    "{what} {}{checkpointed}{shortened} at {at} ... {:.1} s",
                    wanted.precision,
                    begun.elapsed().as_secs_f32()
                );
                // One that may not be refused has ended its recorder.
                ended.fetch_or(answer.is_err() && !wanted.may_fail(), Ordering::Relaxed);
                answers.push((index, answer));
            }
            answers
        };
        let mut recorded: Vec<(usize, Result<Trial, Failure>)> = std::thread::scope(|scope| {
            let working: Vec<_> = self.recorders.iter_mut().map(|recorder| scope.spawn(|| work(recorder))).collect();
            working.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        recorded.sort_by_key(|(index, _)| *index);
        recorded.into_iter().map(|(_, answer)| answer).collect()
    }

    /// What checkpointing changes, seen at the first point; and whether modules repeat.
    fn under(&mut self, wanted: Wanted<'_>) -> Result<Under, Failure> {
        let Some(at) = self.points.trials.first().cloned() else { return Ok(Under::Nothing) };
        let bare = Wanted { checkpoint: Checkpoint::None, ..wanted };
        let what = |index: usize| ["Looking for what can be checkpointed in", "The same without, in"][index].to_owned();
        let mut looked = self.record(&[(at.clone(), wanted), (at.clone(), bare)], what).into_iter();
        let marked = looked.next().unwrap_or_else(|| Err(nobody().into()));
        let plain = match looked.next() {
            Some(plain) => plain,
            None => self.record(&[(at.clone(), bare)], |_| what(1)).pop().unwrap_or_else(|| Err(nobody().into())),
        };
        self.kept.clear();
        let plain = plain?;
        self.shortens = left_out(&plain) >= WORTH;
        let under = match marked {
            Ok(marked) if marked.recording.regions > 0 => {
                let same = same_but_for_marks(&self.hull, &marked, &plain)?;
                self.kept.push((key(&at, &wanted), marked));
                if same { Under::Same } else { Under::Another }
            }
            Ok(_) => Under::Nothing,
            Err(failure @ Failure::Environment { .. }) => return Err(failure),
            Err(failure) => {
                eprintln!("{failure}\nIt is recorded without checkpointing");
                Under::Nothing
            }
        };
        self.kept.push((key(&at, &bare), plain));
        Ok(under)
    }

    /// Records the tapes of a precision and a card; answers which cards they hold for.
    fn tapes(&mut self, wanted: Wanted<'_>) -> Result<Vec<(u8, u8)>, Failure> {
        let checkpointed = wanted.checkpoint == Checkpoint::Real;
        self.recorded(wanted, Wanted { direct: true, ..wanted }, checkpointed)
    }

    /// Records tapes and holds them against what is `direct`; a model that does not come out by its shortened self is recorded whole.
    fn recorded(
        &mut self,
        wanted: Wanted<'_>,
        direct: Wanted<'_>,
        checkpointed: bool,
    ) -> Result<Vec<(u8, u8)>, Failure> {
        let (tapes, exprs) = (self.hull.tapes.len(), self.hull.exprs.len());
        match self.recorded_so(wanted, direct, checkpointed) {
            Err(failure @ Failure::Scenario { .. }) if std::mem::take(&mut self.doubtful) => {
                eprintln!("{failure}\nModules that repeat are recorded one and all");
                self.shortens = false;
                self.hull.tapes.truncate(tapes);
                self.hull.exprs.truncate(exprs);
                self.recorded_so(wanted, direct, checkpointed)
            }
            other => other,
        }
    }

    fn recorded_so(
        &mut self,
        wanted: Wanted<'_>,
        direct: Wanted<'_>,
        checkpointed: bool,
    ) -> Result<Vec<(u8, u8)>, Failure> {
        let points = self.points.trials.clone();
        let holds = Holds { variant: Some(wanted.variant), batch: None, cards: &[], checkpointed };
        let same = self.fitted(&points, wanted, holds)?;
        let witnessed = self.witnessed(wanted, direct, Holds { cards: &same, ..holds });
        self.doubtful |= self.shortens && witnessed.is_err();
        witnessed?;
        Ok(same)
    }

    /// Records at these points and adds the tape that comes of it; answers which cards it holds for.
    fn fitted(&mut self, points: &[Vec<u64>], wanted: Wanted<'_>, holds: Holds<'_>) -> Result<Vec<(u8, u8)>, Failure> {
        let shortens = self.shortens && points.len() > 1;
        let Some(first) = points.first() else { return Err(nobody().into()) };
        let mut asked = vec![(first.clone(), wanted)];
        if shortens {
            // What single samples do at the largest sizes, several have shown. What takes long comes first.
            let largest = self.points.largest.clone().filter(|_| holds.batch.is_none());
            asked.extend(largest.map(|at| (at, Wanted { beyond: true, direct: true, ..wanted })));
            asked.extend(points.iter().map(|at| (at.clone(), Wanted { shortened: true, ..wanted })));
        } else {
            asked.extend(points.iter().skip(1).map(|at| (at.clone(), wanted)));
        }
        // Sizes are learnt from the trials; where these are shortened, the program is the whole model's.
        let (mut whole, mut trials) = (Vec::new(), Vec::new());
        if let Some(known) = self.kept.iter().position(|(of, _)| *of == key(first, &wanted)) {
            if shortens { &mut whole } else { &mut trials }.push(self.kept.swap_remove(known).1);
            asked.remove(0);
        }
        let count = asked.len();
        // A program that changes from size to size has shown it by then. Of a shortened model the others cost less than waiting for the whole.
        let (few, rest) = asked.split_at(if shortens { count } else { FEW.min(count) });
        for (before, some) in [(0, few), (few.len(), rest)] {
            let recorded = self.record(some, |index| format!("Recording ({} of {count})", before + index + 1));
            for (trial, (_, wanted)) in recorded.into_iter().zip(some) {
                let unsure = wanted.beyond || wanted.shortened && trials.is_empty();
                self.doubtful = shortens && unsure && trial.is_err();
                if shortens && !wanted.shortened {
                    whole.push(trial?);
                    continue;
                }
                trials.push(trial?);
                if let [first, .., last] = &trials[..] {
                    same_program(&self.hull, first, last)?;
                }
            }
        }
        let same: Vec<(u8, u8)> = match whole.first().or(trials.first()) {
            Some(first) => CARDS.into_iter().filter(|card| first.recording.same.contains(card)).collect(),
            None => Vec::new(),
        };
        let holds = match holds.cards {
            [] => Holds { cards: &same, ..holds },
            _ => holds,
        };
        let loose = match shortens {
            true => {
                let fitted = fit_whole(&mut self.hull, wanted.precision, holds, &whole, &trials)?;
                self.doubtful = fitted.is_none();
                fitted.ok_or_else(|| {
                    Error::new("trace", "what repeats does not come out as what it repeats", "report it")
                })?
            }
            false => fit(&mut self.hull, wanted.precision, holds, &trials)?,
        };
        if loose > 0 {
            eprintln!("{loose} roundings are not pinned down by these sizes; the offset nearest to 0 is taken");
        }
        Ok(same)
    }

    /// Holds the newest tape against direct recordings, and has a single sample get a tape of its own where it needs one.
    fn witnessed(&mut self, wanted: Wanted<'_>, direct: Wanted<'_>, holds: Holds<'_>) -> Result<(), Failure> {
        let number = self.hull.tapes.len().saturating_sub(1);
        let checkpoint = if holds.checkpointed { Checkpoint::Real } else { Checkpoint::None };
        let asked = Wanted { checkpoint, ..direct };
        let Some(alone) = self.witnesses(number, asked, true)? else { return Ok(()) };
        if self.hull.witness(number, &alone, holds.checkpointed).is_err() {
            eprintln!("A single sample takes another way than several: it is recorded by itself");
            self.fitted(&self.points.singles.clone(), wanted, Holds { batch: Some(1), ..holds })?;
            self.hull.witness(number + 1, &alone, holds.checkpointed)?;
        }
        Ok(())
    }

    /// Has direct recordings be witnesses of a tape; answers that of a single sample, where the model takes one: `BatchNorm` does not,
    /// of a single value.
    fn witnesses(&mut self, number: usize, asked: Wanted<'_>, far: bool) -> Result<Option<Trial>, Failure> {
        let checkpointed = asked.checkpoint == Checkpoint::Real;
        let unsure = Wanted { beyond: true, ..asked };
        let mut wanted: Vec<(Vec<u64>, Wanted<'_>)> =
            self.points.witnesses.iter().map(|at| (at.clone(), asked)).collect();
        let sure = wanted.len();
        let beyond = self.points.beyond.clone().filter(|_| far);
        wanted.extend(beyond.clone().map(|at| (at, unsure)));
        let single = self.hull.axes.first().is_none_or(|axis| axis.least <= 1);
        if single {
            wanted.push((self.points.alone.clone(), unsure));
        }
        let what = |index: usize| {
            let far = beyond.is_some() && index == sure;
            if far { "Witness beyond what was recorded" } else { "Witness" }.to_owned()
        };
        let mut recorded = self.record(&wanted, what).into_iter();
        for witness in recorded.by_ref().take(sure) {
            self.hull.witness(number, &witness?, checkpointed)?;
        }
        if beyond.is_some() {
            match recorded.next().unwrap_or_else(|| Err(nobody().into())) {
                Ok(witness) => self.hull.witness(number, &witness, checkpointed)?,
                Err(failure @ Failure::Environment { .. }) => return Err(failure),
                Err(failure) => eprintln!("{failure}\nIt is not run that far, and nothing is a witness of such sizes"),
            }
        }
        match recorded.next().filter(|_| single) {
            None => Ok(None),
            Some(Err(failure @ Failure::Scenario { .. })) => {
                eprintln!("{failure}\nA single sample cannot be asked for");
                if let Some(batch) = self.hull.axes.first_mut() {
                    batch.least = 2;
                }
                Ok(None)
            }
            Some(other) => other.map(Some),
        }
    }

    /// Sees to it that checkpointing comes out as PyTorch's: worked out from the tape, or else recorded by itself.
    fn checkpointed(&mut self, wanted: Wanted<'_>, under: Under) -> Result<(), Failure> {
        let before = self.hull.tapes.len();
        let worked_out = match under {
            Under::Nothing => return Ok(()),
            Under::Same => self.worked_out(wanted),
            Under::Another => self.another(wanted),
        };
        match worked_out {
            Err(failure @ Failure::Scenario { .. }) => {
                eprintln!("{failure}\nUnder checkpointing it is recorded by itself");
                self.hull.tapes.truncate(before);
                match self.tapes(Wanted { checkpoint: Checkpoint::Real, ..wanted }) {
                    Err(failure @ Failure::Scenario { .. }) => {
                        eprintln!("{failure}\nIt cannot be estimated under checkpointing");
                        self.hull.tapes.truncate(before);
                        let of =
                            |tape: &&mut Tape| tape.precision == wanted.precision && tape.variant == *wanted.variant;
                        for tape in self.hull.tapes.iter_mut().filter(of) {
                            tape.unmark();
                        }
                        Ok(())
                    }
                    other => other.map(drop),
                }
            }
            other => other,
        }
    }

    /// Direct recordings under checkpointing are witnesses of the newest tapes.
    fn worked_out(&mut self, wanted: Wanted<'_>) -> Result<(), Failure> {
        let real = Wanted { direct: true, checkpoint: Checkpoint::Real, ..wanted };
        let newest = self.hull.tapes.len().saturating_sub(1);
        let single = self.hull.tapes.last().is_some_and(|tape| tape.batch.is_some());
        if let Some(alone) = self.witnesses(newest.saturating_sub(usize::from(single)), real, false)? {
            self.hull.witness(newest, &alone, true)?;
        }
        Ok(())
    }

    /// The program that runs under checkpointing, its stretches marked.
    fn another(&mut self, wanted: Wanted<'_>) -> Result<(), Failure> {
        let marked = Wanted { checkpoint: Checkpoint::Marked, ..wanted };
        self.recorded(marked, Wanted { direct: true, ..marked }, true).map(drop)
    }
}
