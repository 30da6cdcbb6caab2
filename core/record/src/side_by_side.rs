//! Measured and predicted phases on one axis: the first step and the steady one.

use plimsoll_estimate::{PhaseName, PhasePeak, Which};

use super::{MeasuredPhase, Measurement};

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
        let peaks = of_it().filter(|p| p.step.unwrap_or(1) == step).filter_map(figures);
        peaks.reduce(PhasePeak::higher)
    }
}

fn figures(phase: &MeasuredPhase) -> Option<PhasePeak> {
    Some(PhasePeak { allocated: phase.peak_allocated?, reserved: phase.peak_reserved? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EXAMPLE;

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
