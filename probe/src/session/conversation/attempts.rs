//! Attempts, and what follows on one: another, larger or smaller, or the end.

use plimsoll_core::measurement::EventKind;

use super::{Flow, Session, Stage, Used};
use crate::policy::{self, Attempted, Policy, Shape, Why};
use crate::session::{Update, Work};
use crate::worker::{AttemptOutcome, Command};

impl Session<'_> {
    pub(super) fn attempt(&mut self, at: u64) -> Flow {
        self.stage = Stage::Running;
        self.warned = false;
        self.used = Used::default();
        let (shape, steps) = (self.shape, self.request.steps);
        self.record.attempt(at, shape);
        self.fleet.attempt(at, shape);
        self.watcher.see(&Update::Attempt { shape, steps });
        let Shape { batch, accumulation, samples } = shape;
        self.worker.send(&Command::Attempt { batch, accumulation, samples, steps });
        Flow::On
    }

    pub(super) fn decide(&mut self, at: u64, outcome: AttemptOutcome) {
        let raising = self.request.target_utilization.is_some() && outcome == AttemptOutcome::Finished;
        let predicted = |shape| if raising { self.predictor.process(shape) } else { None };
        let process = self.used.process.or(self.record.worker_process()).max(self.record.reserved());
        let utilization = (self.used.sum + self.used.count / 2).checked_div(self.used.count);
        self.attempts.push(Attempted {
            shape: self.shape,
            outcome: outcome.into(),
            utilization,
            process,
            predicted: predicted(self.shape),
            predicted_doubled: predicted(self.shape.doubled()),
            room: Some(self.room),
        });
        let policy = Policy {
            // Who ran out of memory left the others in the midst of an exchange: these processes do not go on.
            adapt: self.request.adapt && !self.fleet.is_several(),
            target_utilization: self.request.target_utilization,
            accumulates: self.work.trains(),
        };
        match policy::next(policy, &self.attempts) {
            policy::Advice::Halve(shape) => {
                let text = format!("{} halved to {}", self.work.batch(), described(self.work, shape));
                self.say(EventKind::Halved, [text]);
                self.shape = shape;
                self.attempt(at);
            }
            policy::Advice::Raise(shape) => {
                let grown = if self.work.trains() && shape.samples > self.shape.samples {
                    format!("; the effective batch grows from {} to {}", self.shape.samples, shape.samples)
                } else {
                    String::new()
                };
                let busy = utilization.unwrap_or_default();
                let (what, shape_said) = (self.work.batch(), described(self.work, shape));
                let text = format!("utilisation {busy} %: {what} raised to {shape_said}{grown}");
                self.say(EventKind::Raised, [text]);
                self.shape = shape;
                self.attempt(at);
            }
            policy::Advice::Stop(why) => {
                if self.fleet.is_several() && outcome != AttemptOutcome::Finished {
                    let text = "on several cards the micro-batch is not halved: give a smaller one (--batch)";
                    self.say(EventKind::Note, [text.to_owned()]);
                }
                let what = self.work.batch();
                let told = self.sampling.as_ref().is_some_and(|s| s.latest().utilization.is_some());
                self.say(
                    EventKind::Note,
                    reason(why, raising, utilization.is_none().then_some(told))
                        .map(|words| words.replace("BATCH", what)),
                );
                self.stage = Stage::Finishing;
                self.worker.send(&Command::Finish);
            }
        }
    }
}

fn described(work: Work, shape: Shape) -> String {
    if !work.trains() {
        return shape.batch.to_string();
    }
    format!("{}: {} in a step, {} samples", shape.batch, shape.accumulation, shape.samples)
}

/// Why nothing more is tried, where that needs words; `BATCH` stands for what the batch is called. `unknown`: how much the
/// device was used is not known, and whether anything tells of it at all.
const fn reason(why: Why, raising: bool, unknown: Option<bool>) -> Option<&'static str> {
    match why {
        Why::OneSampleDoesNotFit => Some("not even one sample fits"),
        Why::SmallerOneStands => Some("the smaller BATCH that finished is the result"),
        Why::NoRoom if raising => Some("a larger BATCH would come too near to the end of the memory"),
        Why::UtilizationUnknown => match unknown {
            Some(true) => Some(
                "the BATCH was not raised: it was over too soon to tell how much the device is used; give more --steps",
            ),
            Some(false) => Some("the BATCH was not raised: nothing tells how much the device is used"),
            None => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_too_short_to_tell_is_not_one_that_nothing_tells_of() {
        let said = |unknown| reason(Why::UtilizationUnknown, true, unknown).unwrap_or_default();
        assert!(said(Some(true)).contains("give more --steps"));
        assert!(said(Some(false)).contains("nothing tells how much"));
        assert_eq!(said(None), "");
    }
}
