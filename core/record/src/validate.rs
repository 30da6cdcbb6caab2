//! Whether a record can be true: everything that is wrong with it, each with its key and what to do.

use plimsoll_ground::Error;
use plimsoll_scenario::Scenario;

use super::checks::{cycle, estimate, peaks, ranks, real, sizes, texts};
use super::problems::Problems;
use super::{Measurement, SCHEMA};

impl Measurement {
    /// Everything that is wrong with the record; nothing when it is good. The probe, the server, the scoreboard and
    /// the upload all ask this.
    pub fn validate(&self) -> Vec<Error> {
        let mut problems = Problems::default();
        problems.unless(
            self.schema == SCHEMA,
            "schema",
            || format!("there is no record schema {}", self.schema),
            "give the record as plimsoll probe wrote it",
        );
        let scenario = match Scenario::from_value_to_measure(&self.scenario) {
            Ok(scenario) => Some(scenario),
            Err(error) => {
                let key = if error.key == "scenario" { error.key } else { format!("scenario.{}", error.key) };
                problems.add(key, error.problem, &error.hint);
                None
            }
        };
        texts::check(self, &mut problems);
        sizes::check(self, &mut problems);
        cycle::check(self, scenario.as_ref(), &mut problems);
        peaks::check(self, &mut problems);
        ranks::check(self, scenario.as_ref(), &mut problems);
        estimate::check(self, &mut problems);
        real::check(self, scenario.as_ref(), &mut problems);
        problems.found()
    }

    /// Whether nothing was computed although it was to be: every loss of a training is exactly 0.
    pub fn computes_nothing(&self) -> bool {
        let scenario = Scenario::from_value_to_measure(&self.scenario).ok();
        real::computes_nothing(self, scenario.as_ref())
    }

    /// The index of the attempt that `peak`, `speed` and the steady state are about: the last one that finished, or
    /// the last one when none did.
    pub fn subject(&self) -> Option<usize> {
        let finished = self.attempts.iter().rposition(|attempt| attempt.outcome == super::Outcome::Finished);
        finished.or(self.attempts.len().checked_sub(1))
    }
}
