//! What the worker says: kept in the record, and shown.

use plimsoll_core::measurement::{EventKind, MeasuredStep};

use super::{Flow, NOTES, Session};
use crate::session::Update;
use crate::session::death::death;
use crate::session::greeting::of_rank;
use crate::session::telling::told;
use crate::worker::{ErrorKind, Event, GuardKind, Parsed, Phase};

impl Session<'_> {
    pub(super) fn hear(&mut self, Parsed { at, rank, event }: Parsed) -> Flow {
        self.clock.heard(at);
        match event {
            // What the others say of themselves while they build is what the first one says.
            Event::Progress { .. } | Event::Note { .. } if rank > 0 => {}
            Event::Progress { message } => self.watcher.see(&Update::Progress(&message)),
            Event::Note { message } => {
                self.notes += 1;
                if self.notes > NOTES {
                    return self.too_much("notes without end");
                }
                let event = self.record.event(at, EventKind::Note, &told(&message));
                self.show(&event);
            }
            Event::Ready { parameters } => {
                self.record.record_mut().parameters = Some(parameters);
                if self.fleet.ready() {
                    return self.attempt(at);
                }
            }
            Event::Buffers { buffers } => self.fleet.exchanged(rank, buffers),
            Event::Phase(phase) if rank > 0 => {
                self.fleet.reached(rank, passed(&phase));
                if let Some(other) = self.fleet.other(rank) {
                    other.record.phase(at, &phase);
                }
            }
            Event::Step(step) if rank > 0 => {
                if let Some(other) = self.fleet.other(rank) {
                    other.record.step(at, &step);
                }
            }
            Event::Phase(phase) => {
                self.fleet.reached(rank, passed(&phase));
                self.record.phase(at, &phase);
                self.warn(phase.process.or(phase.peak_reserved));
                self.watcher.see(&Update::Phase { name: phase.name, step: phase.step, micro_batch: phase.micro_batch });
            }
            Event::Step(step) => {
                let kept = self.record.step(at, &step);
                self.used.steady = true;
                self.watcher.see(&Update::Step(&kept));
                if let Some(message) = numeric(&kept).filter(|_| self.work.trains()) {
                    let event = self.record.event(at, EventKind::Numeric, &message);
                    self.show(&event);
                }
                self.warn(step.process.or(step.peak_reserved));
            }
            Event::Guard { kind, step, micro_batch, phase, message } => {
                let (kind, what) = match kind {
                    GuardKind::OutOfMemory => (EventKind::OutOfMemory, "out of memory"),
                    GuardKind::Limit => (EventKind::Limit, "the limit was hit"),
                };
                let mut text = match self.work.trains() {
                    true => format!("{what} with micro-batches of {}", self.shape.batch),
                    false => format!("{what} with a batch of {}", self.shape.batch),
                };
                if self.fleet.is_several() {
                    text.push_str(&format!(" on rank {rank}"));
                }
                if let Some(phase) = phase {
                    text.push_str(&format!(", in {}", phase.as_str()));
                }
                if let Some(step) = step {
                    text.push_str(&format!(" of {} {step}", self.work.noun()));
                }
                if let Some(micro_batch) = micro_batch.filter(|_| self.work.trains()) {
                    text.push_str(&format!(" (micro-batch {micro_batch})"));
                }
                let event = self.record.event(at, kind, &format!("{text}: {}", told(&message)));
                self.show(&event);
            }
            Event::AttemptEnd { outcome, peak_allocated, peak_reserved, retries, .. } => {
                let record = self.fleet.other(rank).map_or(&mut self.record, |other| &mut other.record);
                record.end_attempt(at, outcome.into(), peak_allocated, peak_reserved);
                if let Some(retries @ 1..) = retries {
                    let of = if self.fleet.is_several() { format!("rank {rank}: ") } else { String::new() };
                    let text = format!("{of}the allocator gave cached memory back to make room {retries} time(s)");
                    self.say(EventKind::Note, [text]);
                }
                if let Some(outcome) = self.fleet.ended(rank, outcome) {
                    self.record.set_outcome(outcome.into());
                    self.decide(at, outcome);
                }
            }
            Event::Error { kind, message, hint, traceback } => {
                let end = self.worker.finish();
                let detail = traceback.unwrap_or(end.stderr);
                let hint = hint.unwrap_or_default();
                let mut message = of_rank(self.fleet.is_several(), rank, kind, message);
                if kind == ErrorKind::Lost && !self.fleet.last(rank).is_empty() {
                    message.push_str(&format!(", after {}", self.fleet.last(rank)));
                }
                if kind == ErrorKind::OutOfMemory {
                    return self.no_model(at, &message, &hint);
                }
                return self.failed_as(told(&message), &message, &hint, &detail);
            }
            Event::Bye => {
                let end = self.worker.finish();
                if end.code != Some(0) {
                    return self.failed(&death(&end).0, "", &end.stderr);
                }
                return Flow::Over;
            }
            // A second greeting says nothing new.
            Event::Hello(_) => {}
        }
        Flow::On
    }
}

/// `forward of step 2`.
fn passed(phase: &Phase) -> String {
    let step = phase.step.map(|step| format!(" of step {step}")).unwrap_or_default();
    format!("{}{step}", phase.name.as_str())
}

/// What is wrong with a step's numbers.
fn numeric(step: &MeasuredStep) -> Option<String> {
    match (step.skipped, step.loss) {
        (true, _) => Some(format!("GradScaler skipped step {}: gradients were not finite", step.step)),
        (false, None) => Some(format!("the loss of step {} was not finite", step.step)),
        (false, Some(_)) => None,
    }
}
