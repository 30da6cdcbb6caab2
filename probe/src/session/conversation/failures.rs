//! Ends that are not those of a measurement: silence, words that are none, death, an interrupt.

use std::time::Duration;

use plimsoll_core::measurement::{EventKind, Outcome};

use super::{Flow, GARBAGE, Session, Stage};
use crate::interrupt;
use crate::session::death::death;
use crate::session::greeting::silence;
use crate::session::telling::told;
use crate::session::{PATIENCE, PATIENCE_LOADING, Update};
use crate::worker::AttemptOutcome;

impl Session<'_> {
    pub(super) fn wait(&mut self, silent: Duration) -> Flow {
        if let Some(outcome) = self.fleet.stuck() {
            let at = self.clock.now();
            return self.broken_off(at, outcome);
        }
        let default = if self.stage == Stage::Loading { PATIENCE_LOADING } else { PATIENCE };
        let patience = self.request.timeout.unwrap_or(default);
        if silent < patience {
            return Flow::On;
        }
        let end = self.worker.kill();
        let hint = "if a single phase takes longer than that, give --timeout SECONDS";
        self.failed(&silence(patience), hint, &end.stderr)
    }

    pub(super) fn garbage(&mut self, what: &str) -> Flow {
        self.garbage += 1;
        if self.garbage == 1 {
            self.say(EventKind::Note, [format!("something wrote to the worker's own channel: {}", told(what))]);
        }
        if self.garbage <= GARBAGE {
            return Flow::On;
        }
        self.too_much(what)
    }

    pub(super) fn too_much(&mut self, what: &str) -> Flow {
        let end = self.worker.kill();
        let problem =
            |what: &str| format!("something writes to the worker's own channel, {} lines by now: {what}", self.garbage);
        let (kept, problem) = (problem(&told(what)), problem(what));
        self.failed_as(kept, &problem, "look for code that writes to descriptors by number", &end.stderr)
    }

    pub(super) fn gone(&mut self) -> Flow {
        let end = self.worker.finish();
        if interrupt::asked() {
            self.interrupted();
            return Flow::Over;
        }
        let (problem, hint) = death(&end);
        self.failed(&problem, &hint, &end.stderr)
    }

    pub(super) fn failed(&mut self, problem: &str, hint: &str, detail: &str) -> Flow {
        self.failed_as(problem.to_owned(), problem, hint, detail)
    }

    /// The record keeps other words than the terminal shows.
    pub(super) fn failed_as(&mut self, kept: String, problem: &str, hint: &str, detail: &str) -> Flow {
        if self.stage == Stage::Finishing {
            // Nothing is lost by it.
            self.say(EventKind::Note, [format!("after everything was measured: {kept}")]);
            return Flow::Over;
        }
        self.outcome = Some(Outcome::Failed);
        self.say(EventKind::Failed, [kept]);
        self.watcher.see(&Update::Trouble { problem, hint, detail });
        Flow::Over
    }

    pub(super) fn interrupted(&mut self) {
        self.outcome = Some(Outcome::Interrupted);
        self.worker.kill();
        self.say(EventKind::Interrupted, ["stopped by the user".to_owned()]);
    }

    /// Not even the model fits: no micro-batch will.
    pub(super) fn no_model(&mut self, at: u64, message: &str, hint: &str) -> Flow {
        self.record.attempt(at, self.shape);
        self.record.end_attempt(at, Outcome::OutOfMemory, None, None);
        let event = self.record.event(at, EventKind::OutOfMemory, &told(message));
        self.show(&event);
        self.watcher.see(&Update::Trouble { problem: message, hint, detail: "" });
        Flow::Over
    }

    /// One of several ranks ran out of memory, and the others wait for it: they are ended with it.
    fn broken_off(&mut self, at: u64, outcome: AttemptOutcome) -> Flow {
        self.worker.kill();
        self.record.set_outcome(outcome.into());
        self.decide(at, outcome);
        Flow::Over
    }
}
