//! Several processes that train together: what each of them did, and the record of all.

use std::time::{Duration, Instant};

use plimsoll_core::Measurement;
use plimsoll_core::measurement::{MeasuredBuffer, MeasuredPhase, MeasuredRank, Outcome};

use super::record::Builder;
use super::sensors::Sampling;
use super::worker_clock::WorkerClock;
use crate::policy::Shape;
use crate::worker::AttemptOutcome;

/// How long the other ranks may take to say that they ran out of memory too: who waits for one that did never goes on.
const GRACE: Duration = Duration::from_secs(3);

/// A rank beside the first.
pub struct Other {
    /// What it took, as if it were alone.
    pub record: Builder,
    /// What is read beside it.
    pub sampling: Option<Sampling>,
}

/// Every rank of a run; on one card the only one.
pub struct Fleet {
    /// All but the first, whose record is the session's own.
    pub others: Vec<Other>,
    /// What each exchanged in the last step.
    buffers: Vec<Vec<MeasuredBuffer>>,
    /// How the attempt that runs ended, of each.
    ended: Vec<Option<AttemptOutcome>>,
    /// The last phase that ended, of each.
    last: Vec<String>,
    /// How many stand ready.
    ready: usize,
    /// Until when the rest is waited for.
    deadline: Option<Instant>,
}

impl Fleet {
    /// The first rank and these.
    pub fn new(others: Vec<Other>) -> Self {
        let count = others.len() + 1;
        Self {
            others,
            buffers: vec![Vec::new(); count],
            ended: vec![None; count],
            last: vec![String::new(); count],
            ready: 0,
            deadline: None,
        }
    }

    /// Whether there are several.
    pub fn is_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// Of a rank beside the first, its record.
    pub fn other(&mut self, rank: u32) -> Option<&mut Other> {
        self.others.get_mut(usize::try_from(rank).ok()?.checked_sub(1)?)
    }

    /// One more stands ready; whether all do.
    pub fn ready(&mut self) -> bool {
        self.ready += 1;
        self.ready == self.ended.len()
    }

    /// An attempt begins.
    pub fn attempt(&mut self, at: u64, shape: Shape) {
        self.ended.fill(None);
        self.deadline = None;
        for other in &mut self.others {
            other.record.attempt(at, shape);
        }
    }

    /// A phase of a rank ended.
    pub fn reached(&mut self, rank: u32, phase: String) {
        if let Some(last) = self.last.get_mut(rank as usize) {
            *last = phase;
        }
    }

    /// The last phase of a rank that ended; empty where none did.
    pub fn last(&self, rank: u32) -> &str {
        self.last.get(rank as usize).map_or("", String::as_str)
    }

    /// What a rank exchanged in its last step.
    pub fn exchanged(&mut self, rank: u32, buffers: Vec<MeasuredBuffer>) {
        if let Some(known) = self.buffers.get_mut(rank as usize) {
            *known = buffers;
        }
    }

    /// The attempt of a rank ended. Of all of them once all have.
    pub fn ended(&mut self, rank: u32, outcome: AttemptOutcome) -> Option<AttemptOutcome> {
        *self.ended.get_mut(rank as usize)? = Some(outcome);
        if self.ended.iter().all(Option::is_some) {
            self.deadline = None;
            return self.worst();
        }
        if outcome != AttemptOutcome::Finished {
            self.deadline.get_or_insert(Instant::now() + GRACE);
        }
        None
    }

    /// How the attempt ended where some wait in vain for one that ran out of memory, once they have waited long enough.
    pub fn stuck(&self) -> Option<AttemptOutcome> {
        self.deadline.filter(|deadline| Instant::now() >= *deadline).and_then(|_| self.worst())
    }

    /// As soon as one did not finish, none did.
    fn worst(&self) -> Option<AttemptOutcome> {
        let known = || self.ended.iter().flatten().copied();
        known().find(|outcome| *outcome != AttemptOutcome::Finished).or_else(|| known().next())
    }

    /// Puts the records of all ranks into that of the first: what stands above is then the highest of theirs.
    pub fn together(self, mut record: Measurement, clock: &WorkerClock) -> Measurement {
        if self.others.is_empty() {
            return record;
        }
        let finish = |other: Other| {
            let sampled = other.sampling.map(Sampling::stop);
            other.record.finish(sampled.as_ref(), clock)
        };
        let mut all = vec![record.clone()];
        all.extend(self.others.into_iter().map(finish));
        for other in &all {
            let (peak, its) = (&mut record.peak, &other.peak);
            peak.allocated = peak.allocated.max(its.allocated);
            peak.reserved = peak.reserved.max(its.reserved);
            peak.process = peak.process.max(its.process);
            peak.process_source = peak.process_source.or(its.process_source);
            for phase in &mut record.phases {
                if let Some(same) = other.phases.iter().find(|its| is_same(phase, its)) {
                    raise(phase, same);
                }
            }
        }
        let ended = self.ended.into_iter().map(|outcome| outcome.map(Outcome::from));
        let ranks = (0..).zip(all).zip(ended.zip(self.buffers));
        let device = &record.device.name;
        record.ranks = ranks
            .map(|((rank, its), (outcome, buffers))| MeasuredRank {
                rank,
                device: (its.device.name != *device).then(|| its.device.name.clone()),
                outcome,
                peak: its.peak,
                phases: its.phases,
                buffers,
            })
            .collect();
        record
    }
}

fn is_same(a: &MeasuredPhase, b: &MeasuredPhase) -> bool {
    (a.attempt, a.name, a.step, a.micro_batch) == (b.attempt, b.name, b.step, b.micro_batch)
}

/// Figure by figure the higher one; the time stays the first rank's.
fn raise(phase: &mut MeasuredPhase, other: &MeasuredPhase) {
    phase.peak_allocated = phase.peak_allocated.max(other.peak_allocated);
    phase.peak_reserved = phase.peak_reserved.max(other.peak_reserved);
    phase.end_allocated = phase.end_allocated.max(other.end_allocated);
    phase.end_reserved = phase.end_reserved.max(other.end_reserved);
}
