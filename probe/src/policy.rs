//! What to try next: half the micro-batch when memory ran out, twice of it while the device idles and has room.

use plimsoll_core::Bytes;
use plimsoll_core::measurement::Outcome;

/// Where a warning is due, and how far a raised micro-batch may go: 90 % of what the process may have.
pub const WARN_PERCENT: u64 = 90;

/// How a step is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Samples in a micro-batch.
    pub batch: u64,
    /// Micro-batches in a step; where they do not divide the step's samples, the last one is smaller.
    pub accumulation: u64,
    /// Samples in a step: the effective batch.
    pub samples: u64,
}

impl Shape {
    /// Full micro-batches.
    pub const fn new(batch: u64, accumulation: u64) -> Self {
        Self { batch, accumulation, samples: batch.saturating_mul(accumulation) }
    }

    /// The same samples in micro-batches of `batch`.
    const fn cut(self, batch: u64) -> Self {
        Self { batch, accumulation: self.samples.div_ceil(batch), samples: self.samples }
    }

    /// Half the micro-batch, the same effective batch; `None` at one sample.
    pub const fn halved(self) -> Option<Self> {
        if self.batch > 1 { Some(self.cut(self.batch / 2)) } else { None }
    }

    /// Twice the micro-batch. The effective batch stays while it is larger than that, else it grows with it.
    pub fn doubled(self) -> Self {
        let batch = self.batch.saturating_mul(2);
        if self.samples >= batch { self.cut(batch) } else { Self::new(batch, 1) }
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Whether to halve when memory ran out.
    pub adapt: bool,
    /// Raise the micro-batch while the device is used less than this, in percent.
    pub target_utilization: Option<u8>,
    /// Whether smaller micro-batches are made up for by more of them. Inference has no step to fill: there a smaller batch
    /// is a smaller batch.
    pub accumulates: bool,
}

/// How an attempt went.
#[derive(Clone, Copy, Debug)]
pub struct Attempted {
    /// What was tried.
    pub shape: Shape,
    /// How it ended.
    pub outcome: Outcome,
    /// Mean utilisation over its steady steps, in percent.
    pub utilization: Option<u64>,
    /// The highest memory of the process; where that is not known, what was reserved.
    pub process: Option<Bytes>,
    /// What the estimate says about it.
    pub predicted: Option<Bytes>,
    /// What the estimate says about twice the micro-batch.
    pub predicted_doubled: Option<Bytes>,
    /// What the process may have: the limit, or the card.
    pub room: Option<Bytes>,
}

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Memory ran out: try this.
    Halve(Shape),
    /// The device idles and has room: try this.
    Raise(Shape),
    /// That is it.
    Stop(Why),
}

/// Why there is nothing more to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The attempt finished, and nothing more was asked for.
    Done,
    /// Not even one sample fits.
    OneSampleDoesNotFit,
    /// Memory ran out, and halving was not wanted.
    NotWanted,
    /// A smaller micro-batch finished before: that is the result.
    SmallerOneStands,
    /// Twice the micro-batch would come too near to the end of the memory.
    NoRoom,
    /// How much the device is used is not known.
    UtilizationUnknown,
}

/// Decides, from all attempts so far; the last one has just ended.
pub fn next(policy: Policy, attempts: &[Attempted]) -> Advice {
    let Some(last) = attempts.last() else { return Advice::Stop(Why::Done) };
    match last.outcome {
        Outcome::OutOfMemory | Outcome::Limit => after_out_of_memory(policy, attempts, last),
        Outcome::Finished => after_finished(policy, attempts, last),
        Outcome::Interrupted | Outcome::Failed => Advice::Stop(Why::Done),
    }
}

fn after_out_of_memory(policy: Policy, attempts: &[Attempted], last: &Attempted) -> Advice {
    if attempts.iter().any(|a| a.outcome == Outcome::Finished) {
        return Advice::Stop(Why::SmallerOneStands);
    }
    if !policy.adapt {
        return Advice::Stop(Why::NotWanted);
    }
    let halved =
        last.shape.halved().map(|halved| if policy.accumulates { halved } else { Shape::new(halved.batch, 1) });
    halved.map_or(Advice::Stop(Why::OneSampleDoesNotFit), Advice::Halve)
}

fn after_finished(policy: Policy, attempts: &[Attempted], last: &Attempted) -> Advice {
    let Some(target) = policy.target_utilization else { return Advice::Stop(Why::Done) };
    let Some(utilization) = last.utilization else { return Advice::Stop(Why::UtilizationUnknown) };
    if utilization >= u64::from(target) {
        return Advice::Stop(Why::Done);
    }
    let doubled = last.shape.doubled();
    let ran_out =
        |a: &Attempted| matches!(a.outcome, Outcome::OutOfMemory | Outcome::Limit) && a.shape.batch <= doubled.batch;
    if attempts.iter().any(ran_out) || !has_room(last) {
        return Advice::Stop(Why::NoRoom);
    }
    Advice::Raise(doubled)
}

/// Whether twice the micro-batch stays under 90 % of the room. Without an estimate the whole process is taken to double,
/// which it never does: weights and context stay. Where more was measured than estimated, the estimate is raised by as much.
fn has_room(last: &Attempted) -> bool {
    let Some(room) = last.room else { return false };
    let doubled = match (last.predicted_doubled, last.predicted, last.process) {
        (Some(doubled), Some(predicted), Some(process)) => {
            doubled.get().saturating_add(process.saturating_sub(predicted).get())
        }
        (Some(doubled), _, None) => doubled.get(),
        (_, _, Some(process)) => process.get().saturating_mul(2),
        (None, _, None) => return false,
    };
    Bytes::new(doubled) <= share(room)
}

/// Where the warning is due.
pub fn share(room: Bytes) -> Bytes {
    let n = room.get();
    Bytes::new(n / 100 * WARN_PERCENT + n % 100 * WARN_PERCENT / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPT: Policy = Policy { adapt: true, target_utilization: None, accumulates: true };
    const RAISE: Policy = Policy { adapt: true, target_utilization: Some(85), accumulates: true };

    fn attempted(shape: Shape, outcome: Outcome) -> Attempted {
        Attempted {
            shape,
            outcome,
            utilization: Some(40),
            process: Some(Bytes::from_gib(2)),
            predicted: Some(Bytes::from_gib(2)),
            predicted_doubled: Some(Bytes::from_gib(3)),
            room: Some(Bytes::from_gib(11)),
        }
    }

    #[test]
    fn halving_keeps_the_effective_batch_down_to_one() {
        let mut shape = Shape::new(12, 2);
        let mut seen = Vec::new();
        while let Advice::Halve(next) = next(ADAPT, &[attempted(shape, Outcome::OutOfMemory)]) {
            assert_eq!(next.samples, 24);
            seen.push((next.batch, next.accumulation));
            shape = next;
        }
        assert_eq!(seen, [(6, 4), (3, 8), (1, 24)]);
        assert_eq!(next(ADAPT, &[attempted(shape, Outcome::Limit)]), Advice::Stop(Why::OneSampleDoesNotFit));
    }

    #[test]
    fn an_odd_micro_batch_leaves_a_smaller_last_one() {
        let halved = Shape::new(5, 3).halved().unwrap();
        assert_eq!(halved, Shape { batch: 2, accumulation: 8, samples: 15 });
    }

    #[test]
    fn no_halving_when_it_is_not_wanted() {
        let policy = Policy { adapt: false, ..ADAPT };
        assert_eq!(next(policy, &[attempted(Shape::new(8, 1), Outcome::OutOfMemory)]), Advice::Stop(Why::NotWanted));
    }

    #[test]
    fn raising_while_the_device_idles() {
        let finished = attempted(Shape::new(4, 4), Outcome::Finished);
        let Advice::Raise(raised) = next(RAISE, &[finished]) else { panic!("not raised") };
        assert_eq!(raised, Shape { batch: 8, accumulation: 2, samples: 16 });
        assert_eq!(next(ADAPT, &[finished]), Advice::Stop(Why::Done), "only when it is asked for");

        let busy = Attempted { utilization: Some(85), ..finished };
        assert_eq!(next(RAISE, &[busy]), Advice::Stop(Why::Done));
        let unknown = Attempted { utilization: None, ..finished };
        assert_eq!(next(RAISE, &[unknown]), Advice::Stop(Why::UtilizationUnknown));
    }

    #[test]
    fn the_effective_batch_grows_only_when_nothing_is_left_to_merge() {
        assert_eq!(Shape::new(4, 1).doubled(), Shape::new(8, 1));
        assert_eq!(Shape::new(4, 3).doubled(), Shape { batch: 8, accumulation: 2, samples: 12 });
        assert_eq!(Shape { batch: 8, accumulation: 2, samples: 12 }.doubled(), Shape::new(16, 1));
    }

    #[test]
    fn raising_stops_below_nine_tenths() {
        let finished = attempted(Shape::new(4, 4), Outcome::Finished);
        let tight = Attempted { room: Some(Bytes::from_mib(3413)), ..finished };
        assert_eq!(next(RAISE, &[tight]), Advice::Stop(Why::NoRoom));
        let just = Attempted { room: Some(Bytes::from_mib(3414)), ..finished };
        assert!(matches!(next(RAISE, &[just]), Advice::Raise(_)));
        // What was measured above the estimate is added to it.
        let above = Attempted { process: Some(Bytes::from_mib(2049)), ..just };
        assert_eq!(next(RAISE, &[above]), Advice::Stop(Why::NoRoom));
        // Without an estimate everything is taken to double.
        let blind =
            Attempted { predicted: None, predicted_doubled: None, room: Some(Bytes::from_mib(4551)), ..finished };
        assert_eq!(next(RAISE, &[blind]), Advice::Stop(Why::NoRoom));
        let blind = Attempted { room: Some(Bytes::from_mib(4552)), ..blind };
        assert!(matches!(next(RAISE, &[blind]), Advice::Raise(_)));
        let nothing = Attempted { process: None, ..blind };
        assert_eq!(next(RAISE, &[nothing]), Advice::Stop(Why::NoRoom));
    }

    #[test]
    fn never_back_to_what_ran_out() {
        let out = attempted(Shape::new(8, 1), Outcome::OutOfMemory);
        let finished = attempted(Shape::new(4, 2), Outcome::Finished);
        assert_eq!(next(RAISE, &[out, finished]), Advice::Stop(Why::NoRoom));
        assert_eq!(next(RAISE, &[finished, out]), Advice::Stop(Why::SmallerOneStands));
    }
}
