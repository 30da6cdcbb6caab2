//! The steps that were traced for a grid, each once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_ground::Result;
use plimsoll_scenario::Scenario;

use super::variant::with_sizes;
use crate::{OneBatch, execute_for_memory};

/// Steps of a scenario at any batch and sequence.
pub struct Steps<'a> {
    scenario: &'a Scenario,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    steps: BTreeMap<(u64, Option<u64>), Arc<OneBatch>>,
    /// What steps do. Those that do the same share one trace of it: a hundred would be large, and comparing them slow.
    ways: Vec<Arc<OneBatch>>,
}

impl<'a> Steps<'a> {
    /// None is traced yet.
    pub fn new(scenario: &'a Scenario) -> Self {
        Self { scenario, known: Mutex::default() }
    }

    /// The step at a batch and a sequence.
    ///
    /// # Errors
    /// As of [`execute_for_memory`], and sizes that the scenario refuses.
    pub fn at(&self, batch: u64, seq: Option<u64>) -> Result<Arc<OneBatch>> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(step) = known().steps.get(&(batch, seq)) {
            return Ok(Arc::clone(step));
        }
        let step = OneBatch::of(Arc::new(execute_for_memory(&with_sizes(self.scenario, batch, seq)?)?));
        let mut known = known();
        let way = known.ways.iter().find(|way| way.does_as(&step)).map(|way| Arc::clone(&way.ledger));
        let step = match way {
            Some(ledger) => Arc::new(OneBatch { ledger, ..step }),
            None => {
                let step = Arc::new(step);
                known.ways.push(Arc::clone(&step));
                step
            }
        };
        known.steps.insert((batch, seq), Arc::clone(&step));
        Ok(step)
    }

    /// How many are traced.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).steps.len()
    }
}
