//! The scenario as it really ran: what an estimate of the measurement has to answer.

use plimsoll_ground::{Bytes, Result};
use plimsoll_scenario::{Scenario, lever};

use super::{DeviceKind, Measurement, Outcome};

impl Measurement {
    /// The scenario as it ran in the end: with the micro-batch and accumulation of the attempt the record is about, the
    /// card and the versions it ran on, and what the process could have of the card as its memory.
    ///
    /// # Errors
    /// When the scenario cannot be read.
    pub fn as_run(&self) -> Result<Scenario> {
        let mut scenario = Scenario::from_value_to_measure(&self.scenario)?;
        if let Some(attempt) = self.subject().and_then(|index| self.attempts.get(index)) {
            scenario.input.batch = attempt.batch;
            scenario.training.accumulation = attempt.accumulation;
        }
        for (path, version) in [
            ("software.torch", Some(&self.software.torch)),
            ("software.transformers", self.software.transformers.as_ref()),
            ("software.bitsandbytes", self.software.bitsandbytes.as_ref()),
        ] {
            if let (Some(lever), Some(version)) = (lever(path), version) {
                lever.set(&mut scenario, &version.as_str().into())?;
            }
        }
        // What the scenario says of a card is about the one it plans for.
        scenario.device.load_line = None;
        scenario.device.memory = self.room();
        if let Some(gpu) = &self.device.gpu {
            scenario.device.gpu.clone_from(gpu);
        }
        scenario.check()?;
        Ok(scenario)
    }

    /// What the process could have of a card: its memory less what the driver keeps and others held, or the hard cap.
    fn room(&self) -> Option<Bytes> {
        if self.device.kind != DeviceKind::Cuda {
            return self.allocator.limit;
        }
        let held = [self.device.reserved, self.device.used_before].into_iter().flatten();
        let card = held.fold(self.device.total, Bytes::saturating_sub);
        Some(self.allocator.limit.map_or(card, |limit| limit.min(card)))
    }

    /// Whether the attempt the record is about ran to its end, so that its peaks are those of a whole run.
    pub fn finished(&self) -> bool {
        self.subject().and_then(|index| self.attempts.get(index)).is_some_and(|a| a.outcome == Outcome::Finished)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_scenario::Version;

    use super::*;
    use crate::EXAMPLE;

    #[test]
    fn the_attempt_that_finished_on_the_card_it_ran_on() {
        let mut record = Measurement::from_json(EXAMPLE).unwrap();
        record.device.gpu = Some("h200".to_owned());
        record.software.torch = "2.9.1+cu128".to_owned();
        let scenario = record.as_run().unwrap();
        assert_eq!((scenario.input.batch, scenario.training.accumulation), (8, 4));
        assert_eq!(scenario.device.gpu, "h200");
        assert_eq!(scenario.device.memory, Some(Bytes::from_gib(9)));
        assert_eq!(scenario.software.torch, Version::new(2, 9));
        record.software.bitsandbytes = Some("0.43.1".to_owned());
        assert_eq!(record.as_run().unwrap().software.bitsandbytes, Version::patch(0, 43, 1));
        assert!(record.finished());
        record.allocator.limit = None;
        assert_eq!(record.as_run().unwrap().device.memory, Some(Bytes::from_mib(12 * 1024 - 412 - 612)));
        record.attempts.pop();
        assert!(!record.finished());
    }
}
