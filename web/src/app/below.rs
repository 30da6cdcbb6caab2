//! What stands below the verdict, which follows a frame later.

use std::sync::Arc;

use leptos::prelude::*;
use plimsoll_core::Scenario;
use plimsoll_web::neighbours::Neighbour;
use plimsoll_web::reading::Reading;

use super::browser;
use super::planner::{NeighbourPeak, Planner};

/// What all but the verdict and the fields is drawn of: the planner's own, once the verdict on it has been painted, so that
/// nothing keeps a key from its answer.
#[derive(Clone, Copy)]
pub struct Below {
    /// What is asked.
    pub scenario: RwSignal<Scenario>,
    /// The last run that could be read.
    pub reading: RwSignal<Option<Arc<Reading>>>,
    /// Whether the planner's own are others by now.
    behind: StoredValue<bool>,
}

impl Below {
    /// Of a scenario that nothing was found out about yet.
    pub fn of(scenario: Scenario) -> Self {
        let (scenario, reading) = (RwSignal::new(scenario), RwSignal::new(None));
        Self { scenario, reading, behind: StoredValue::new(false) }
    }
}

impl Planner {
    /// Lets the page below the verdict follow when that is painted; while the worker is at it, with its answer, or when typing
    /// rests.
    pub fn fall_behind(&self) {
        self.below.behind.set_value(true);
        if !self.pending.get_untracked() {
            let planner = *self;
            browser::after_paint(Box::new(move || planner.catch_up()));
        }
    }

    /// Shows below the verdict what it says; nothing where that is done.
    pub fn catch_up(&self) {
        let Below { scenario, reading, behind } = self.below;
        if !behind.get_value() {
            return;
        }
        behind.set_value(false);
        let now = self.scenario.get_untracked();
        let refused = self.fault.with_untracked(Option::is_some);
        let neighbours = if refused { Vec::new() } else { Neighbour::around(&now) };
        self.rungs.update(|rungs| {
            // A rung that stays keeps its last place until it is known anew: no jumping about.
            let known = |neighbour| rungs.iter().find(|r| r.neighbour == neighbour).and_then(|r| r.peak.clone());
            let rung = |(neighbour, _)| NeighbourPeak { neighbour, peak: known(neighbour) };
            *rungs = neighbours.into_iter().map(rung).collect();
        });
        if scenario.with_untracked(|shown| *shown != now) {
            scenario.set(now);
        }
        let read = self.reading.get_untracked();
        let shown = reading.with_untracked(|shown| shown.as_ref().map(Arc::as_ptr));
        if shown != read.as_ref().map(Arc::as_ptr) {
            self.window.set(None);
            self.cursor.set(None);
            self.alive.set(read.as_ref().map(|read| read.holdings.clone()).unwrap_or_default());
            reading.set(read);
        }
    }
}
