//! The state of the page: one scenario, what is known about it, and what is still being found out.

use std::sync::Arc;

use leptos::prelude::*;
use plimsoll_core::Scenario;
use plimsoll_core::scenario::{Mode, ModelSource};
use plimsoll_web::engine;
use plimsoll_web::errand::{Answer, Depth, Fault};
use plimsoll_web::heatmap::Sheet;
use plimsoll_web::levers::Lever;
use plimsoll_web::reading::{Held, Reading};
use plimsoll_web::wording::sentence;

use super::{address, desk};
use desk::Topic;

/// The page's state; a handful of signals that every part shares.
#[derive(Clone, Copy)]
pub struct Planner {
    /// What is asked.
    pub scenario: RwSignal<Scenario>,
    /// The last run that could be read.
    pub reading: RwSignal<Option<Arc<Reading>>>,
    /// Why the present scenario cannot be.
    pub fault: RwSignal<Option<Fault>>,
    /// Whether a run is under way in the worker.
    pub pending: RwSignal<bool>,
    /// The largest micro-batch that fits; `None` while it is sought.
    pub largest: RwSignal<Option<Result<u64, Fault>>>,
    /// The neighbours of the scenario.
    pub rungs: RwSignal<Vec<Rung>>,
    /// What fits around it; the last one that was found.
    pub sheet: RwSignal<Option<Arc<Sheet>>>,
    /// Whether that is still being found out.
    pub sheet_pending: RwSignal<bool>,
    /// The point of the timeline that is looked at; `None` is the peak.
    pub cursor: RwSignal<Option<usize>>,
    /// What is alive there.
    pub alive: RwSignal<Vec<Held>>,
    /// What was wrong with the link.
    pub notices: RwSignal<Vec<String>>,
}

/// One neighbour of the scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// What is changed.
    pub lever: Lever,
    /// How deep it sits; `None` while it is sought.
    pub depth: Option<Result<Depth, Fault>>,
}

impl Planner {
    /// Opens on the link in the address bar, or on the opening scenario.
    pub fn open() -> Self {
        let (scenario, notices) = address::read();
        let planner = Self {
            scenario: RwSignal::new(scenario),
            reading: RwSignal::new(None),
            fault: RwSignal::new(None),
            pending: RwSignal::new(false),
            largest: RwSignal::new(None),
            rungs: RwSignal::new(Vec::new()),
            sheet: RwSignal::new(None),
            sheet_pending: RwSignal::new(false),
            cursor: RwSignal::new(None),
            alive: RwSignal::new(Vec::new()),
            notices: RwSignal::new(notices),
        };
        desk::open(planner);
        planner.recompute();
        address::follow(planner);
        planner
    }

    /// The planner of this page.
    pub fn get() -> Self {
        expect_context()
    }

    /// Changes the scenario; everything follows.
    pub fn change(&self, edit: impl FnOnce(&mut Scenario)) {
        let mut scenario = self.scenario.get_untracked();
        edit(&mut scenario);
        self.set(scenario);
    }

    /// Replaces the scenario; everything follows.
    pub fn set(&self, scenario: Scenario) {
        if self.scenario.with_untracked(|s| *s == scenario) {
            return;
        }
        self.scenario.set(scenario);
        self.recompute();
        address::write_soon(*self);
    }

    /// Changes the scenario unless the change is refused.
    ///
    /// # Errors
    /// Why it is refused; nothing is changed then.
    pub fn try_change(&self, edit: impl FnOnce(&mut Scenario)) -> Result<(), Fault> {
        let mut scenario = self.scenario.get_untracked();
        edit(&mut scenario);
        self.set(Scenario::from_value(&scenario.to_value())?);
        Ok(())
    }

    /// Trains or infers.
    ///
    /// # Errors
    /// When the model is not estimated so; nothing is changed then.
    pub fn choose_mode(&self, mode: Mode) -> Result<(), Fault> {
        self.set(engine::in_mode(&self.scenario.get_untracked(), mode)?);
        Ok(())
    }

    /// Replaces the model, as far as the rest of the scenario can follow it.
    ///
    /// # Errors
    /// When the model is refused; nothing is changed then.
    pub fn choose_model(&self, source: ModelSource) -> Result<(), Fault> {
        let next = engine::with_model(&self.scenario.get_untracked(), source)?;
        self.set(next);
        Ok(())
    }

    /// What the engine found wrong with the value of `key`, the last part of the scenario's path.
    pub fn fault_at(&self, key: &'static str) -> Signal<Option<String>> {
        let fault = self.fault;
        Signal::derive(move || {
            fault.with(|fault| {
                let fault = fault.as_ref().filter(|f| f.key.rsplit('.').next() == Some(key))?;
                Some(format!("{} {}", sentence(&fault.problem), sentence(&fault.hint)))
            })
        })
    }

    /// Pulls a lever.
    pub fn pull(&self, lever: Lever) {
        if let Some(next) = self.scenario.with_untracked(|s| lever.apply(s)) {
            self.set(next);
        }
    }

    /// Takes batch and sequence of a cell of the sheet.
    pub fn take_sizes(&self, batch: u64, seq: Option<u64>) {
        self.change(|scenario| {
            scenario.input.batch = batch;
            if let Some(before) = scenario.input.seq {
                let seq = seq.unwrap_or(before);
                if scenario.input.target_seq == Some(before) {
                    scenario.input.target_seq = Some(seq);
                }
                scenario.input.seq = Some(seq);
            }
        });
    }

    fn recompute(&self) {
        let scenario = self.scenario.get_untracked();
        desk::sound(*self, &scenario);
    }

    /// Moves the timeline's cursor.
    pub fn look_at(&self, point: usize) {
        let Some(reading) = self.reading.get_untracked() else {
            return;
        };
        let at_peak = point == reading.peak;
        let cursor = (!at_peak).then_some(point);
        if self.cursor.get_untracked() == cursor {
            return;
        }
        self.cursor.set(cursor);
        if at_peak {
            self.alive.set(reading.holdings.clone());
        } else if let Some(point) = reading.points.get(point) {
            desk::alive(*self, point.event);
        }
    }

    /// Takes in what the desk found.
    pub fn receive(&self, topic: Topic, answer: Result<Answer, Fault>) {
        match (topic, answer) {
            (Topic::Reading, Ok(Answer::Reading(reading))) => self.read(*reading),
            (Topic::Reading, Err(fault)) => {
                self.pending.set(false);
                self.fault.set(Some(fault));
            }
            (Topic::Largest, Ok(Answer::Largest(batch))) => self.largest.set(Some(Ok(batch))),
            (Topic::Largest, Err(fault)) => self.largest.set(Some(Err(fault))),
            (Topic::Rung(lever), Ok(Answer::Peak(depth))) => self.rung(lever, Ok(depth)),
            (Topic::Rung(lever), Err(fault)) => self.rung(lever, Err(fault)),
            (Topic::Sheet, Ok(Answer::Sheet(sheet))) => {
                self.sheet_pending.set(false);
                self.sheet.set(Some(Arc::from(sheet)));
            }
            (Topic::Sheet, Err(_)) => {
                self.sheet_pending.set(false);
                self.sheet.set(None);
            }
            (Topic::Alive, Ok(Answer::Alive(held))) => self.alive.set(held),
            // An answer to another question than was asked: nothing to show.
            _ => {}
        }
    }

    /// Shows a reading.
    pub fn read(&self, reading: Reading) {
        self.pending.set(false);
        self.fault.set(None);
        self.cursor.set(None);
        self.alive.set(reading.holdings.clone());
        self.reading.set(Some(Arc::new(reading)));
    }

    fn rung(&self, lever: Lever, depth: Result<Depth, Fault>) {
        self.rungs.update(|rungs| {
            if let Some(rung) = rungs.iter_mut().find(|r| r.lever == lever) {
                rung.depth = Some(depth);
            }
        });
    }
}
