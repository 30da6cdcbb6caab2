//! The phases of the first step and of the steady one, one figure each: what a measured run is laid beside.

use plimsoll_ground::Bytes;
use plimsoll_ledger::PhaseName;

use super::Estimate;

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
    /// The higher of both, figure by figure.
    pub fn higher(self, other: Self) -> Self {
        Self { allocated: self.allocated.max(other.allocated), reserved: self.reserved.max(other.reserved) }
    }
}

impl Estimate {
    /// What is predicted of a phase; the last step that is run is the steady one. An estimate of inference is of one run,
    /// the first: what the allocator keeps of it for later ones is not predicted.
    pub fn phase_peak(&self, name: PhaseName, which: Which) -> Option<PhasePeak> {
        let step = match which {
            Which::First => 1,
            // Of one that is run once, as inference is, there is none.
            Which::Steady => self.phases.iter().filter_map(|p| p.step).max().unwrap_or(1).max(2),
        };
        let of_it = self.phases.iter().filter(|p| p.name == name && p.step.unwrap_or(1) == step);
        let peaks = of_it.map(|p| PhasePeak { allocated: p.peak_allocated, reserved: p.peak_reserved });
        peaks.reduce(PhasePeak::higher)
    }
}
