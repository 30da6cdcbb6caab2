//! Every precision recorded at every point, with one choice of sizes.

use std::time::Instant;

use plimsoll_core::Error;
use plimsoll_core::ledger::hull::{Asked, Holds, Hull, Tape, Trial, Variant, fit, same_but_for_marks, same_program};

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

/// What is being recorded.
#[derive(Debug)]
pub struct Attempt<'a> {
    recorders: &'a mut [Recorder],
    given: &'a Given,
    points: Points,
    hull: Hull,
}

fn nobody() -> Error {
    Error::new("trace", "nobody records", "report it")
}

impl<'a> Attempt<'a> {
    /// With these axes, nothing recorded yet.
    pub fn new(recorders: &'a mut [Recorder], asked: &Asked, given: &'a Given) -> Self {
        let hull = Hull::new(asked.clone());
        Self { recorders, given, points: Points::of(&hull.axes), hull }
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
        let under = self.under(Wanted {
            variant,
            precision: first,
            card,
            direct: false,
            checkpoint: Checkpoint::Marked,
            beyond: false,
        })?;
        for precision in precisions {
            let mut open: Vec<(u8, u8)> = cards.to_vec();
            while let Some(card) = open.first().copied() {
                let checkpoint = if under == Under::Same { Checkpoint::Marked } else { Checkpoint::None };
                let wanted = Wanted { variant, precision, card, direct: false, checkpoint, beyond: false };
                let same = self.tapes(wanted)?;
                self.checkpointed(wanted, under)?;
                // What has just been recorded is open no more.
                open.retain(|other| *other != card && !same.contains(other));
            }
        }
        Ok(())
    }

    fn record(&mut self, at: &[u64], wanted: Wanted<'_>, what: &str) -> Result<Trial, Failure> {
        let mut recorded = self.side_by_side(&[(at, wanted)], |_| what.to_owned());
        recorded.pop().unwrap_or_else(|| Err(nobody().into()))
    }

    /// As many recordings as there are recorders, at once.
    fn side_by_side(
        &mut self,
        asked: &[(&[u64], Wanted<'_>)],
        what: impl Fn(usize) -> String,
    ) -> Vec<Result<Trial, Failure>> {
        let begun = Instant::now();
        for (recorder, (at, wanted)) in self.recorders.iter_mut().zip(asked) {
            recorder.ask(self.given, at, *wanted);
        }
        let answered = self.recorders.iter_mut().zip(asked).enumerate().map(|(index, (recorder, (at, wanted)))| {
            let checkpointed = if wanted.checkpoint == Checkpoint::Real { ", checkpointed" } else { "" };
            eprint!("{} {}{checkpointed} at {} ... ", what(index), wanted.precision, self.given.at(at));
            let answer = recorder.answer(at);
            eprintln!("{:.1} s", begun.elapsed().as_secs_f32());
            answer
        });
        answered.collect()
    }

    /// What checkpointing changes, seen at the first point.
    fn under(&mut self, wanted: Wanted<'_>) -> Result<Under, Failure> {
        let Some(at) = self.points.trials.first().cloned() else { return Ok(Under::Nothing) };
        let marked = match self.record(&at, wanted, "Looking for what can be checkpointed in") {
            Ok(marked) if marked.recording.regions > 0 => marked,
            Ok(_) => return Ok(Under::Nothing),
            Err(failure @ Failure::Environment { .. }) => return Err(failure),
            Err(failure) => {
                eprintln!("{failure}\nIt is recorded without checkpointing");
                return Ok(Under::Nothing);
            }
        };
        let plain = self.record(&at, Wanted { checkpoint: Checkpoint::None, ..wanted }, "The same without, in")?;
        Ok(if same_but_for_marks(&self.hull, &marked, &plain)? { Under::Same } else { Under::Another })
    }

    /// Records the tapes of a precision and a card; answers which cards they hold for.
    fn tapes(&mut self, wanted: Wanted<'_>) -> Result<Vec<(u8, u8)>, Failure> {
        let alone = wanted.checkpoint == Checkpoint::Real;
        let trials = self.trials(&self.points.trials.clone(), wanted)?;
        let same: Vec<(u8, u8)> = match trials.first() {
            Some(first) => CARDS.into_iter().filter(|card| first.recording.same.contains(card)).collect(),
            None => Vec::new(),
        };
        let holds = Holds { variant: Some(wanted.variant), batch: None, cards: &same, checkpointed: alone };
        self.fitted(wanted, holds, &trials)?;
        self.witnessed(Wanted { direct: true, ..wanted }, holds)?;
        Ok(same)
    }

    fn fitted(&mut self, wanted: Wanted<'_>, holds: Holds<'_>, trials: &[Trial]) -> Result<(), Failure> {
        let loose = fit(&mut self.hull, wanted.precision, holds, trials)?;
        if loose > 0 {
            eprintln!("{loose} roundings are not pinned down by these sizes; the offset nearest to 0 is taken");
        }
        Ok(())
    }

    fn trials(&mut self, points: &[Vec<u64>], wanted: Wanted<'_>) -> Result<Vec<Trial>, Failure> {
        let mut trials: Vec<Trial> = Vec::new();
        for some in points.chunks(self.recorders.len().max(1)) {
            let before = trials.len();
            let asked: Vec<(&[u64], Wanted<'_>)> = some.iter().map(|at| (at.as_slice(), wanted)).collect();
            let what = |index: usize| format!("Recording ({} of {})", before + index + 1, points.len());
            // One that ended because of its refusal is the whole attempt's.
            for trial in self.side_by_side(&asked, what) {
                let trial = trial?;
                if let Some(first) = trials.first() {
                    same_program(&self.hull, first, &trial)?;
                }
                trials.push(trial);
            }
        }
        Ok(trials)
    }

    /// Holds the newest tape against direct recordings, and has a single sample get a tape of its own where it needs one.
    fn witnessed(&mut self, direct: Wanted<'_>, holds: Holds<'_>) -> Result<(), Failure> {
        let number = self.hull.tapes.len().saturating_sub(1);
        let checkpoint = if holds.checkpointed { Checkpoint::Real } else { Checkpoint::None };
        let asked = Wanted { checkpoint, ..direct };
        for at in self.points.witnesses.clone() {
            let witness = self.record(&at, asked, "Witness")?;
            self.hull.witness(number, &witness, holds.checkpointed)?;
        }
        if let Some(at) = self.points.beyond.clone() {
            match self.record(&at, Wanted { beyond: true, ..asked }, "Witness beyond what was recorded") {
                Ok(witness) => self.hull.witness(number, &witness, holds.checkpointed)?,
                Err(failure @ Failure::Environment { .. }) => return Err(failure),
                Err(failure) => eprintln!("{failure}\nIt is not run that far, and nothing is a witness of such sizes"),
            }
        }
        let Some(alone) = self.alone(asked)? else { return Ok(()) };
        if self.hull.witness(number, &alone, holds.checkpointed).is_err() {
            eprintln!("A single sample takes another way than several: it is recorded by itself");
            let singles = self.trials(&self.points.singles.clone(), Wanted { direct: false, ..direct })?;
            self.fitted(direct, Holds { batch: Some(1), ..holds }, &singles)?;
            self.hull.witness(number + 1, &alone, holds.checkpointed)?;
        }
        Ok(())
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
        let at = self.points.witnesses.first().cloned();
        if let Some(at) = at {
            let witness = self.record(&at, real, "Witness")?;
            self.hull.witness(newest.saturating_sub(usize::from(single)), &witness, true)?;
        }
        if let Some(alone) = self.alone(real)? {
            self.hull.witness(newest, &alone, true)?;
        }
        Ok(())
    }

    /// A single sample, where the model takes one: `BatchNorm` does not, of a single value.
    fn alone(&mut self, asked: Wanted<'_>) -> Result<Option<Trial>, Failure> {
        if self.hull.axes.first().is_some_and(|axis| axis.least > 1) {
            return Ok(None);
        }
        match self.record(&self.points.alone.clone(), Wanted { beyond: true, ..asked }, "Witness") {
            Err(failure @ Failure::Scenario { .. }) => {
                eprintln!("{failure}\nA single sample cannot be asked for");
                if let Some(batch) = self.hull.axes.first_mut() {
                    batch.least = 2;
                }
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// The program that runs under checkpointing, its stretches marked.
    fn another(&mut self, wanted: Wanted<'_>) -> Result<(), Failure> {
        let marked = Wanted { checkpoint: Checkpoint::Marked, ..wanted };
        let trials = self.trials(&self.points.trials.clone(), marked)?;
        let same: Vec<(u8, u8)> = match trials.first() {
            Some(first) => CARDS.into_iter().filter(|card| first.recording.same.contains(card)).collect(),
            None => Vec::new(),
        };
        let holds = Holds { variant: Some(wanted.variant), batch: None, cards: &same, checkpointed: true };
        self.fitted(marked, holds, &trials)?;
        self.witnessed(Wanted { direct: true, ..marked }, holds)
    }
}
