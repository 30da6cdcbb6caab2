//! Card, twin and estimate of one entry, side by side.

use plimsoll_core::estimate::{Against, PhaseName, PhasePeak, Requests, Run};
use plimsoll_core::measurement::{Outcome, PHASE_ORDER, Which};
use plimsoll_core::snapshot::{Course, Parting, Snapshot};
use plimsoll_core::{Bytes, Measurement, Scenario};
use serde::Serialize;

use crate::session::{as_measured, subject, with_shape};

/// One figure, three times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Three {
    /// On the card.
    pub card: Option<Bytes>,
    /// On its twin.
    pub twin: Option<Bytes>,
    /// By the estimate.
    pub estimate: Option<Bytes>,
}

impl Three {
    /// Whether the twin says what the card says.
    fn twin_agrees(self) -> bool {
        self.card == self.twin
    }

    /// Whether the estimate does, where it says anything.
    fn estimate_agrees(self) -> bool {
        self.estimate.is_none_or(|estimate| self.card == Some(estimate))
    }
}

/// A phase of the first step or of the steady one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// Which.
    pub phase: PhaseName,
    /// Whether it is of the last step, and not of the first or before.
    pub steady: bool,
    /// `max_memory_allocated` in it.
    pub allocated: Three,
    /// `max_memory_reserved`.
    pub reserved: Three,
}

/// How an attempt was cut, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// Samples of a micro-batch.
    pub batch: u64,
    /// Micro-batches of a step.
    pub accumulation: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// A record with the allocator's history, where there is one.
#[derive(Debug)]
pub struct Side {
    /// The record.
    pub record: Measurement,
    /// The history.
    pub snapshot: Option<Snapshot>,
}

/// What came of comparing.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// The attempts on the card.
    pub attempts: Vec<Ended>,
    /// Those of the twin, where they are others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub twin_attempts: Option<Vec<Ended>>,
    /// The highest allocated of the run.
    pub allocated: Three,
    /// The highest reserved.
    pub reserved: Three,
    /// The highest of the process. What the context takes is no matter of PyTorch's: it is told and decides nothing.
    pub process: Three,
    /// Phase by phase.
    pub phases: Vec<Phase>,
    /// What tensors asked for: the one is the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Parting>,
    /// What the allocator asked the driver for. Told only: two threads give memory back at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<Parting>,
    /// The twin's steady step beside the estimate's, request by request, where both have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub twin_and_estimate: Option<Requests>,
    /// The card's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_and_estimate: Option<Requests>,
    /// Why there is no twin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_twin: Option<String>,
    /// Why there is no estimate, or why it decides nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_estimate: Option<String>,
    /// Whether the twin did what the card did: attempts, phases, requests.
    pub twin_agrees: bool,
    /// Whether the estimate says what the card did, phase by phase; absent where it cannot be held to it.
    pub estimate_agrees: Option<bool>,
    /// Whether all ask for the same in the same order, as far as that is known, whatever the figures. What is left then is where the
    /// driver puts segments, which decides between free blocks of one size: a real one's addresses mostly fall, the others' rise.
    pub asks_alike: bool,
}

impl Beside {
    /// Compares; `twin` may be why there is none.
    pub fn of(card: &Side, twin: Result<&Side, String>) -> Self {
        let record = &card.record;
        let (run, no_estimate) = match estimate(record) {
            Ok(run) => (Some(run), None),
            Err(why) => (None, Some(why)),
        };
        let guarded = (record.attempts.len() > 1)
            .then(|| "after an attempt that ran out of memory it is not that of a fresh process".to_owned());
        let estimate = run.as_ref().map(Run::estimate);
        let (other, no_twin) = match twin {
            Ok(side) => (Some(side), None),
            Err(why) => (None, Some(why)),
        };

        let peak = |of: fn(&Measurement) -> Option<Bytes>, predicted: Option<Bytes>| Three {
            card: of(record),
            twin: other.and_then(|side| of(&side.record)),
            estimate: predicted,
        };
        let mut phases = Vec::new();
        for which in Which::BOTH {
            for phase in PHASE_ORDER {
                let peaks = [
                    record.phase_peak(phase, which),
                    other.and_then(|side| side.record.phase_peak(phase, which)),
                    estimate.and_then(|estimate| estimate.phase_peak(phase, which)),
                ];
                // Where neither card nor twin tells of it there is nothing to hold the estimate to.
                if peaks[0].is_some() || peaks[1].is_some() {
                    let three = |of: fn(PhasePeak) -> Bytes| {
                        let [card, twin, estimate] = peaks.map(|peak| peak.map(of));
                        Three { card, twin, estimate }
                    };
                    let (allocated, reserved) = (three(|peak| peak.allocated), three(|peak| peak.reserved));
                    phases.push(Phase { phase, steady: which == Which::Steady, allocated, reserved });
                }
            }
        }

        let histories = |side: &Side, against: &Side| {
            let (one, two) = (side.snapshot.as_ref()?, against.snapshot.as_ref()?);
            let (a, b) = (one.busiest()?, two.busiest()?);
            Some((Parting::of_tensors((one, a), (two, b)), Parting::of_segments((one, a), (two, b))))
        };
        let (tensors, segments) = other.and_then(|side| histories(card, side)).unzip();
        let steady = |side: &Side| {
            let (run, snapshot) = (run.as_ref()?, side.snapshot.as_ref()?);
            Against::new(run, snapshot, &Course::of(snapshot.busiest()?)).step
        };

        let attempts = ended(record);
        let twins = other.map(|side| ended(&side.record));
        let twin_agrees = twins.as_ref() == Some(&attempts)
            && phases.iter().all(|phase| phase.allocated.twin_agrees() && phase.reserved.twin_agrees())
            && tensors.as_ref().is_none_or(Parting::agrees);
        let held = estimate.is_some() && guarded.is_none();
        let estimate_agrees = held
            .then(|| phases.iter().all(|phase| phase.allocated.estimate_agrees() && phase.reserved.estimate_agrees()));
        let twin_and_estimate = other.and_then(steady).filter(|_| held);
        let card_and_estimate = steady(card).filter(|_| held);
        let alike = |requests: &Option<Requests>| requests.as_ref().is_none_or(|requests| requests.differs.is_none());
        let asks_alike = twins.as_ref() == Some(&attempts)
            && tensors.as_ref().is_some_and(Parting::agrees)
            && alike(&twin_and_estimate)
            && alike(&card_and_estimate);
        Self {
            allocated: peak(|record| record.peak.allocated, estimate.map(|estimate| estimate.peak.allocated)),
            reserved: peak(|record| record.peak.reserved, estimate.map(|estimate| estimate.peak.reserved)),
            process: peak(|record| record.peak.process, estimate.map(|estimate| estimate.peak.process)),
            phases,
            tensors,
            segments,
            twin_and_estimate,
            card_and_estimate,
            asks_alike,
            no_twin,
            no_estimate: no_estimate.or(guarded),
            twin_agrees,
            estimate_agrees,
            twin_attempts: twins.filter(|twins| *twins != attempts),
            attempts,
        }
    }

    /// Whether all three say the same, as far as there are three.
    pub fn agrees(&self) -> bool {
        self.twin_agrees && self.estimate_agrees != Some(false)
    }
}

fn ended(record: &Measurement) -> Vec<Ended> {
    let each = |attempt: &plimsoll_core::measurement::Attempt| Ended {
        batch: attempt.batch,
        accumulation: attempt.accumulation,
        outcome: attempt.outcome,
    };
    record.attempts.iter().map(each).collect()
}

/// The estimate of what ran on the card in the end.
fn estimate(record: &Measurement) -> Result<Run, String> {
    if record.device.gpu.is_none() {
        return Err("the catalog does not know this card".to_owned());
    }
    let (_, attempt) = subject(record).ok_or("nothing ran")?;
    let scenario = Scenario::from_value_to_measure(&record.scenario).map_err(|error| error.problem)?;
    let scenario = as_measured(&scenario, &record.software, &record.device, record.allocator.limit);
    Run::new(&with_shape(&scenario, attempt.batch, attempt.accumulation)).map_err(|error| error.problem)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::measurement::Attempt;

    use super::*;
    use crate::records::sample;

    fn side() -> Side {
        Side { record: sample::record(), snapshot: None }
    }

    #[test]
    fn a_byte_more_in_one_phase_is_a_difference() {
        let card = side();
        let beside = Beside::of(&card, Ok(&side()));
        assert!(beside.twin_agrees && !beside.phases.is_empty(), "{beside:?}");
        let mut twin = side();
        let phase = twin.record.phases.last_mut().unwrap();
        phase.peak_reserved = phase.peak_reserved.map(|bytes| bytes + Bytes::new(1));
        let beside = Beside::of(&card, Ok(&twin));
        assert!(!beside.twin_agrees && !beside.agrees());
        assert!(!Beside::of(&card, Err("it died".to_owned())).agrees(), "without a twin nothing agrees");
    }

    #[test]
    fn an_estimate_that_is_of_something_else_decides_nothing() {
        let (mut card, mut twin) = (side(), side());
        for side in [&mut card, &mut twin] {
            let first = side.record.attempts[0].clone();
            side.record.attempts.insert(0, Attempt { outcome: Outcome::OutOfMemory, ..first });
            for phase in side.record.phases.iter_mut().filter(|phase| phase.name != PhaseName::Load) {
                phase.attempt = 1;
            }
        }
        let beside = Beside::of(&card, Ok(&twin));
        assert_eq!((beside.estimate_agrees, beside.agrees()), (None, true), "{:?}", beside.no_estimate);
        let mut card = side();
        card.record.device.gpu = None;
        assert!(Beside::of(&card, Ok(&side())).no_estimate.unwrap().contains("catalog"));
    }
}
