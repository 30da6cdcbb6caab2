//! The state of the page: one scenario, what is known about it, and what is still being found out.

use std::collections::BTreeMap;
use std::sync::Arc;

use leptos::prelude::*;
use plimsoll_core::estimate::fit::{Allowed, Cards, Fit, Plans};
use plimsoll_core::scenario::{Change, Decoded};
use plimsoll_core::solve::Grid;
use plimsoll_core::{Bytes, Error, Result, Scenario};
use plimsoll_web::neighbours::Neighbour;
use plimsoll_web::plans::differences;
use plimsoll_web::protocol::{Answer, Peak};
use plimsoll_web::reading::{Held, Point, Reading};
use plimsoll_web::trail::Trail;
use plimsoll_web::window::{Stretch, Window};
use plimsoll_web::wording::sentence;

use super::below::Below;
use super::bench::Topic;
use super::{address, browser, hulls, scheduler};

/// Changes of the same levers that follow within this time, in ms, are one: a number being typed, a slider being moved.
const ONE_CHANGE: f64 = 1500.0;

/// The page's state; a handful of signals that every part shares.
#[derive(Clone, Copy)]
pub struct Planner {
    /// What is asked.
    pub scenario: RwSignal<Scenario>,
    /// The last run that could be read.
    pub reading: RwSignal<Option<Arc<Reading>>>,
    /// Both, as what stands below the verdict shows them.
    pub below: Below,
    /// Why the present scenario cannot be.
    pub fault: RwSignal<Option<Error>>,
    /// Whether a run is under way in the worker.
    pub pending: RwSignal<bool>,
    /// The largest micro-batch that fits; `None` while it is sought.
    pub largest: RwSignal<Option<Result<u64>>>,
    /// The neighbours of the scenario.
    pub rungs: RwSignal<Vec<NeighbourPeak>>,
    /// Which recipes bring it onto its card; `None` while they are sought.
    pub fit: RwSignal<Option<Result<Arc<Fit>>>>,
    /// How several cards hold it; `None` while nobody asked, or it is sought.
    pub plans: RwSignal<Option<Result<Arc<Plans>>>>,
    /// How many ways have been searched, and of how many; `None` while nobody asked.
    pub planned: RwSignal<Option<(usize, usize)>>,
    /// Which cards hold it; `None` while nobody asked, or they are sought.
    pub cards: RwSignal<Option<Result<Arc<Cards>>>>,
    /// Fields that hold no value, by their ids, with their labels: what the page says is of the last one they had.
    pub amiss: RwSignal<BTreeMap<String, String>>,
    /// What fits around it; the last one that was found.
    pub grid: RwSignal<Option<Arc<Grid>>>,
    /// Whether that is still being found out.
    pub grid_pending: RwSignal<bool>,
    /// The point of the timeline that is looked at; `None` is the peak.
    pub cursor: RwSignal<Option<usize>>,
    /// What is alive there.
    pub alive: RwSignal<Vec<Held>>,
    /// The part of the timeline that is looked at closely; `None` is all of it.
    pub window: RwSignal<Option<Arc<Window>>>,
    /// What was wrong with the link.
    pub notices: RwSignal<Vec<String>>,
    /// What is known of the plans beside it, by their ids.
    pub beside: RwSignal<BTreeMap<u64, Result<Arc<Reading>>>>,
    /// The changes made so far.
    pub trail: RwSignal<Trail<Scenario>>,
    /// The process peak of what the page was opened with, as soon as it is known.
    pub opened: RwSignal<Option<Bytes>>,
    /// When the last change was made, and of which levers.
    last: StoredValue<(f64, Vec<&'static str>)>,
}

/// One neighbour of the scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct NeighbourPeak {
    /// What is changed.
    pub neighbour: &'static Neighbour,
    /// Its process peak; `None` while it is sought.
    pub peak: Option<Result<Peak>>,
}

impl Planner {
    /// Opens on what the address bar asks.
    pub fn open(Decoded { scenario, notices }: Decoded) -> Self {
        let scenario = hulls::with_file(scenario);
        let planner = Self {
            trail: RwSignal::new(Trail::new(scenario.clone())),
            opened: RwSignal::new(None),
            beside: RwSignal::new(BTreeMap::new()),
            last: StoredValue::new((f64::NEG_INFINITY, Vec::new())),
            below: Below::of(scenario.clone()),
            scenario: RwSignal::new(scenario),
            reading: RwSignal::new(None),
            fault: RwSignal::new(None),
            pending: RwSignal::new(false),
            largest: RwSignal::new(None),
            rungs: RwSignal::new(Vec::new()),
            fit: RwSignal::new(None),
            plans: RwSignal::new(None),
            planned: RwSignal::new(None),
            cards: RwSignal::new(None),
            amiss: RwSignal::new(BTreeMap::new()),
            grid: RwSignal::new(None),
            grid_pending: RwSignal::new(false),
            cursor: RwSignal::new(None),
            alive: RwSignal::new(Vec::new()),
            window: RwSignal::new(None),
            notices: RwSignal::new(notices),
        };
        scheduler::open(planner);
        if let Some(hash) = planner.scenario.with_untracked(hulls::missing) {
            hulls::fetch(planner, hash);
        }
        planner.recompute();
        address::follow(planner);
        planner
    }

    /// The planner of this page.
    pub fn get() -> Self {
        expect_context()
    }

    /// Whether what is not there yet will come: of a scenario that is refused nothing does.
    pub fn awaits(&self, missing: bool) -> bool {
        missing && self.fault.with(Option::is_none)
    }

    /// Changes the scenario; everything follows.
    ///
    /// # Errors
    /// Why the change is refused; nothing is changed then.
    pub fn change(&self, change: &Change) -> Result<()> {
        self.set(change.apply(&self.scenario.get_untracked())?);
        Ok(())
    }

    /// Replaces the scenario; everything follows. It can be undone.
    pub fn set(&self, scenario: Scenario) {
        if self.scenario.with_untracked(|s| *s == scenario) {
            return;
        }
        let of = self.scenario.with_untracked(|now| differences(now, &scenario));
        let (since, before) = self.last.get_value();
        let settled = browser::now() - since > ONE_CHANGE || before != of;
        self.last.set_value((browser::now(), of));
        self.trail.update(|trail| trail.enter(scenario.clone(), settled));
        self.show(scenario);
        address::write_soon(*self, settled);
    }

    /// Follows the address bar: the browser's Back and Forward lead along the trail.
    pub fn follow(&self, scenario: Scenario) {
        if self.scenario.with_untracked(|s| *s == scenario) {
            return;
        }
        self.settle();
        self.trail.update(|trail| trail.enter(scenario.clone(), true));
        self.show(scenario);
        address::write_soon(*self, false);
    }

    /// Takes the last change back.
    pub fn undo(&self) {
        self.step(Trail::undo);
    }

    /// Makes the change again that was taken back last.
    pub fn redo(&self) {
        self.step(Trail::redo);
    }

    fn step(&self, step: fn(&mut Trail<Scenario>) -> Option<Scenario>) {
        if let Some(scenario) = self.trail.try_update(step).flatten() {
            self.settle();
            self.show(scenario);
            address::write_soon(*self, true);
        }
    }

    /// Whatever comes next is a change of its own.
    fn settle(&self) {
        self.last.set_value((f64::NEG_INFINITY, Vec::new()));
    }

    fn show(&self, scenario: Scenario) {
        let scenario = hulls::with_file(scenario);
        if let Some(hash) = hulls::missing(&scenario) {
            hulls::fetch(*self, hash);
        }
        self.scenario.set(scenario);
        self.recompute();
    }

    /// What the engine found wrong with the value of `key`, the whole path of it.
    pub fn fault_at(&self, key: impl Into<String>) -> Signal<Option<String>> {
        let (fault, key) = (self.fault, key.into());
        Signal::derive(move || fault.with(|fault| fault.as_ref().filter(|fault| fault.key == key).map(in_full)))
    }

    /// Climbs to a neighbour.
    pub fn climb(&self, neighbour: &Neighbour) {
        if let Some(next) = self.scenario.with_untracked(|s| neighbour.apply(s)) {
            self.set(next);
        }
    }

    /// Takes the scenario of a recipe or of a plan whole.
    pub fn take(&self, scenario: Result<Scenario>) {
        match scenario {
            Ok(scenario) => self.set(scenario),
            Err(fault) => self.fault.set(Some(fault)),
        }
    }

    /// Seeks recipes that may cut the sequence too.
    pub fn allow_shorter(&self) {
        self.fit.set(None);
        self.scenario.with_untracked(|scenario| scheduler::fit(scenario, Allowed { shorter: true }));
    }

    /// Whether the last reading is below the load line; so is what has none.
    pub fn sits_too_deep(&self) -> bool {
        self.reading.with_untracked(|reading| reading.as_ref().is_none_or(|reading| reading.standing.below()))
    }

    /// Seeks plans for several cards.
    pub fn seek_plans(&self) {
        self.plans.set(None);
        self.planned.set(Some((0, 0)));
        self.scenario.with_untracked(scheduler::plans);
    }

    /// Seeks the cards that hold the run.
    pub fn seek_cards(&self) {
        self.scenario.with_untracked(scheduler::cards);
    }

    /// Notes that a field holds a value, or none.
    pub fn holds(&self, id: &str, label: &str, value: bool) {
        if self.amiss.with_untracked(|amiss| amiss.contains_key(id)) == value {
            self.amiss.update(|amiss| {
                if value {
                    amiss.remove(id);
                } else {
                    amiss.insert(id.to_owned(), label.to_owned());
                }
            });
        }
    }

    /// Takes batch and sequence of a cell of the grid.
    pub fn take_sizes(&self, batch: u64, seq: Option<u64>) {
        if let Err(fault) = self.change(&Change::Sizes { batch, seq }) {
            self.fault.set(Some(fault));
        }
    }

    /// A hull came that the scenario was waiting for.
    pub fn came(&self) {
        let scenario = hulls::with_file(self.scenario.get_untracked());
        if hulls::missing(&scenario).is_none() {
            // The scenario is the same as without the file.
            self.below.scenario.set(scenario.clone());
            self.scenario.set(scenario);
            self.recompute();
            address::write_soon(*self, false);
        } else if let Some(fault) = self.scenario.with_untracked(hulls::fault) {
            self.fault.set(Some(fault));
        }
    }

    fn recompute(&self) {
        let scenario = self.scenario.get_untracked();
        scheduler::run(*self, &scenario);
        self.fall_behind();
    }

    /// Moves the timeline's cursor to a point of what it shows.
    pub fn look_at(&self, point: usize) {
        let Some(reading) = self.below.reading.get_untracked() else {
            return;
        };
        let window = self.window.get_untracked();
        let at_peak = window.is_none() && point == reading.peak;
        let cursor = (!at_peak).then_some(point);
        if self.cursor.get_untracked() == cursor {
            return;
        }
        self.cursor.set(cursor);
        let points = window.as_ref().map_or(&reading.points, |window| &window.points);
        if at_peak {
            self.alive.set(reading.holdings.clone());
        } else if let Some(point) = points.get(point) {
            scheduler::alive(*self, point.event);
        }
    }

    /// What the timeline shows: its points, the index of the highest, and that of the cursor.
    pub fn shown<T>(&self, look: impl FnOnce(&Reading, &[Point], usize, usize) -> T) -> Option<T> {
        let (cursor, window) = (self.cursor.get(), self.window.get());
        self.below.reading.with(|reading| {
            let reading = reading.as_ref()?;
            let (points, peak) = window.as_ref().map_or((&reading.points, reading.peak), |w| (&w.points, w.peak));
            Some(look(reading, points, peak, cursor.unwrap_or(peak)))
        })
    }

    /// The part of the run that the timeline shows, and how many events there are in all.
    pub fn stretch(&self) -> Option<(Stretch, u32)> {
        let last = self.below.reading.with_untracked(|r| r.as_ref().and_then(|r| r.points.last().map(|p| p.event)))?;
        let whole = Stretch { from: 0, to: last };
        Some((self.window.with_untracked(|window| window.as_ref().map_or(whole, |window| window.stretch)), last))
    }

    /// Shows a part of the timeline, or all of it; the cursor stays at its moment.
    pub fn look_closely(&self, stretch: Stretch) {
        let Some((now, last)) = self.stretch() else { return };
        if now == stretch {
            return;
        }
        if !stretch.is_whole(last) {
            scheduler::stretch(*self, stretch);
            return;
        }
        let event = self.event();
        self.window.set(None);
        self.cursor.set(None);
        if let (Some(event), Some(reading)) = (event, self.below.reading.get_untracked()) {
            self.look_at(reading.points.partition_point(|p| p.event <= event).saturating_sub(1));
        }
    }

    /// The moment under the cursor, in events.
    fn event(&self) -> Option<u32> {
        untrack(|| self.shown(|_, points, _, cursor| points.get(cursor).map(|point| point.event)).flatten())
    }

    fn open_window(&self, window: Window) {
        let event = self.event().unwrap_or_default();
        let cursor = window.at(event.clamp(window.stretch.from, window.stretch.to));
        self.window.set(Some(Arc::new(window)));
        self.cursor.set(None);
        self.look_at(cursor);
    }

    /// Takes in what the scheduler found.
    pub fn receive(&self, topic: Topic, answer: Result<Answer>) {
        match (topic, answer) {
            (Topic::Reading, Ok(Answer::Reading(reading))) => {
                self.read(*reading);
                let several = self.scenario.with_untracked(|scenario| scenario.parallel.gpus > 1);
                if several && scheduler::rests() && self.sits_too_deep() {
                    self.scenario.with_untracked(scheduler::plans);
                }
            }
            (Topic::Reading, Err(fault)) => {
                self.pending.set(false);
                self.fault.set(Some(fault));
                self.fall_behind();
            }
            (Topic::Largest, Ok(Answer::Largest(batch))) => self.largest.set(Some(Ok(batch))),
            (Topic::Largest, Err(fault)) => self.largest.set(Some(Err(fault))),
            (Topic::Neighbour(neighbour), Ok(Answer::Peak(peak))) => self.neighbour(neighbour, Ok(peak)),
            (Topic::Neighbour(neighbour), Err(fault)) => self.neighbour(neighbour, Err(fault)),
            (Topic::Grid, Ok(Answer::Grid(grid))) => {
                self.grid_pending.set(false);
                self.grid.set(Some(Arc::from(grid)));
            }
            (Topic::Grid, Err(_)) => {
                self.grid_pending.set(false);
                self.grid.set(None);
            }
            (Topic::Fit, Ok(Answer::Fit(fit))) => self.fit.set(Some(Ok(Arc::from(fit)))),
            (Topic::Fit, Err(fault)) => self.fit.set(Some(Err(fault))),
            (Topic::Plans, Ok(Answer::Planning(done, of))) => {
                self.planned.set(Some((done, of)));
                self.scenario.with_untracked(scheduler::plans);
            }
            (Topic::Plans, Ok(Answer::Plans(plans))) => self.plans.set(Some(Ok(Arc::from(plans)))),
            (Topic::Plans, Err(fault)) => self.plans.set(Some(Err(fault))),
            (Topic::Cards, Ok(Answer::Cards(cards))) => self.cards.set(Some(Ok(Arc::from(cards)))),
            (Topic::Cards, Err(fault)) => self.cards.set(Some(Err(fault))),
            (Topic::Alive, Ok(Answer::Alive(held))) => self.alive.set(held),
            (Topic::Stretch, Ok(Answer::Stretch(Some(window)))) => self.open_window(*window),
            (Topic::Beside(id), Ok(Answer::Beside(reading))) => {
                self.beside.update(|beside| drop(beside.insert(id, Ok(Arc::from(reading)))));
            }
            (Topic::Beside(id), Err(fault)) => self.beside.update(|beside| drop(beside.insert(id, Err(fault)))),
            // An answer to another question than was asked: nothing to show.
            _ => {}
        }
    }

    /// Shows a reading.
    pub fn read(&self, reading: Reading) {
        self.pending.set(false);
        self.fault.set(None);
        let first = self.trail.with_untracked(|trail| self.scenario.with_untracked(|now| trail.first() == now));
        if first {
            self.opened.set(Some(reading.process));
        }
        self.reading.set(Some(Arc::new(reading)));
        self.fall_behind();
    }

    fn neighbour(&self, neighbour: &'static Neighbour, peak: Result<Peak>) {
        self.rungs.update(|rungs| {
            if let Some(rung) = rungs.iter_mut().find(|r| r.neighbour == neighbour) {
                rung.peak = Some(peak);
            }
        });
    }
}

/// What is wrong and what to do, in sentences.
pub fn in_full(fault: &Error) -> String {
    format!("{} {}", sentence(&fault.problem), sentence(&fault.hint))
}
