//! Measured and predicted phases on one axis: the first step and the steady one.

use super::{MeasuredPhase, Measurement};
use crate::Bytes;
use crate::estimate::{Estimate, PhaseName};

/// The phases as the loop runs them.
pub const PHASE_ORDER: [PhaseName; 9] = [
    PhaseName::Load,
    PhaseName::Input,
    PhaseName::Prefill,
    PhaseName::Decode,
    PhaseName::Forward,
    PhaseName::Backward,
    PhaseName::Clip,
    PhaseName::Optimizer,
    PhaseName::ZeroGrad,
];

/// Which of the two steps that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// Step 1, and what comes before it.
    First,
    /// The last one.
    Steady,
}

impl Which {
    /// In the order they run.
    pub const BOTH: [Self; 2] = [Self::First, Self::Steady];
}

/// One phase of one step, its micro-batches together: the highest of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhasePeak {
    /// Highest allocated.
    pub allocated: Bytes,
    /// Highest reserved.
    pub reserved: Bytes,
}

impl PhasePeak {
    fn higher(self, other: Self) -> Self {
        Self { allocated: self.allocated.max(other.allocated), reserved: self.reserved.max(other.reserved) }
    }

    fn of(phase: &MeasuredPhase) -> Option<Self> {
        Some(Self { allocated: phase.peak_allocated?, reserved: phase.peak_reserved? })
    }
}

impl Measurement {
    /// What was measured of a phase, in the attempt the record is about; `None` where it was not, or the device keeps no
    /// such count.
    pub fn phase_peak(&self, name: PhaseName, which: Which) -> Option<PhasePeak> {
        // The model is loaded once, within the first attempt.
        let attempt = if name == PhaseName::Load { 0 } else { u32::try_from(self.subject()?).ok()? };
        let of_it = || self.phases.iter().filter(move |p| p.name == name && p.attempt == attempt);
        let last = of_it().filter_map(|p| p.step).max();
        let step = match which {
            Which::First => 1,
            Which::Steady => last.filter(|step| *step > 1)?,
        };
        let peaks = of_it().filter(|p| p.step.unwrap_or(1) == step).filter_map(PhasePeak::of);
        peaks.reduce(PhasePeak::higher)
    }
}

impl Estimate {
    /// What is predicted of a phase; the estimate's second step is its steady one. An estimate of inference is of one run,
    /// the first: what the allocator keeps of it for later ones is not predicted.
    pub fn phase_peak(&self, name: PhaseName, which: Which) -> Option<PhasePeak> {
        let step = match which {
            Which::First => 1,
            Which::Steady => 2,
        };
        let of_it = self.phases.iter().filter(|p| p.name == name && p.step.unwrap_or(1) == step);
        let peaks = of_it.map(|p| PhasePeak { allocated: p.peak_allocated, reserved: p.peak_reserved });
        peaks.reduce(PhasePeak::higher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::EXAMPLE;

    #[test]
    fn the_highest_micro_batch_of_the_attempt_that_finished() {
        let record = Measurement::from_json(EXAMPLE).unwrap();
        let forward = record.phase_peak(PhaseName::Forward, Which::First).unwrap();
        let highest =
            record.phases.iter().filter(|p| p.attempt == 1 && p.name == PhaseName::Forward && p.step == Some(1));
        assert_eq!(Some(forward.allocated), highest.filter_map(|p| p.peak_allocated).max());
        // The model was loaded once, in the attempt that hit the limit.
        assert!(record.phase_peak(PhaseName::Load, Which::First).is_some());
        assert!(record.phase_peak(PhaseName::Load, Which::Steady).is_none());
    }
}
