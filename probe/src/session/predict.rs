//! What the engine says about the card that was measured.

use plimsoll_core::device::limits;
use plimsoll_core::estimate::{self, Estimate, Run};
use plimsoll_core::measurement::{DeviceKind, MeasuredDevice, MeasuredSoftware};
use plimsoll_core::software::Version;
use plimsoll_core::{Bytes, Error, Measurement, Scenario, catalog};
use serde_json::Value;

use crate::policy::Shape;

/// The scenario as it was measured: the versions that ran, and [`on_card`].
pub fn as_measured(
    scenario: &Scenario,
    software: &MeasuredSoftware,
    device: &MeasuredDevice,
    limit: Option<Bytes>,
) -> Scenario {
    let mut scenario = scenario.clone();
    let versions = &mut scenario.software;
    versions.torch = Version::parse(&software.torch).unwrap_or(versions.torch);
    let transformers = software.transformers.as_deref().and_then(Version::parse);
    versions.transformers = transformers.unwrap_or(versions.transformers);
    let bitsandbytes = software.bitsandbytes.as_deref().and_then(Version::parse_patch);
    versions.bitsandbytes = bitsandbytes.unwrap_or(versions.bitsandbytes);
    on_card(&scenario, device, limit)
}

/// The scenario on the card that was measured: its id where it is in the catalog, and what one process could have of it, by
/// the driver's own figures and the hard cap. Unchanged where no card was measured.
pub fn on_card(scenario: &Scenario, device: &MeasuredDevice, limit: Option<Bytes>) -> Scenario {
    let mut scenario = scenario.clone();
    if device.kind != DeviceKind::Cuda {
        return scenario;
    }
    if let Some(gpu) = &device.gpu {
        scenario.device.gpu.clone_from(gpu);
    }
    let real = room(device, limit);
    scenario.device.memory = Some(scenario.device.memory.map_or(real, |asked| asked.min(real)));
    scenario
}

/// What the process may have of the device: its memory less what the driver keeps and others held, or the limit.
pub fn room(device: &MeasuredDevice, limit: Option<Bytes>) -> Bytes {
    let card = match device.kind {
        DeviceKind::Cuda => {
            let held = [device.reserved, device.used_before].into_iter().flatten();
            held.fold(device.total, Bytes::saturating_sub)
        }
        DeviceKind::Mps | DeviceKind::Cpu => device.total,
    };
    limit.map_or(card, |limit| limit.min(card))
}

/// The same scenario cut otherwise.
pub fn with_shape(scenario: &Scenario, batch: u64, accumulation: u64) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.input.batch = batch;
    scenario.training.accumulation = accumulation;
    scenario
}

/// Asks the engine during a session.
#[derive(Debug)]
pub struct Predictor {
    scenario: Scenario,
    /// Whether the process's memory is what the estimate speaks of.
    comparable: bool,
}

impl Predictor {
    pub fn new(scenario: &Scenario, record: &Measurement) -> Self {
        let device = &record.device;
        Self {
            scenario: as_measured(scenario, &record.software, device, record.allocator.limit),
            comparable: device.kind == DeviceKind::Cuda,
        }
    }

    /// How deep the process should sit on the card.
    pub fn load_line(&self) -> Option<Bytes> {
        let asked = &self.scenario.device;
        let gpu = catalog::gpu(&asked.gpu).filter(|_| self.comparable)?;
        Some(limits(gpu, asked.memory, asked.load_line).load_line)
    }

    /// The process's peak at another shape, where it can be compared with what is measured.
    pub fn process(&self, shape: Shape) -> Option<Bytes> {
        if !self.comparable || self.scenario.compiles_unmodelled() {
            return None;
        }
        let run = Run::new(&with_shape(&self.scenario, shape.batch, shape.accumulation)).ok()?;
        Some(run.estimate().peak.process)
    }

    /// The estimate as `plimsoll estimate` gives it.
    pub fn estimate(&self) -> Result<Estimate, Error> {
        estimate::estimate(&self.scenario)
    }
}

/// The estimate for the record.
pub fn value(predictor: &Predictor) -> Option<Value> {
    serde_json::to_value(predictor.estimate().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> MeasuredDevice {
        MeasuredDevice {
            kind: DeviceKind::Cuda,
            name: "NVIDIA GeForce RTX 5070".to_owned(),
            gpu: Some("rtx-5070".to_owned()),
            total: Bytes::from_mib(12_227),
            reserved: Some(Bytes::from_mib(227)),
            used_before: Some(Bytes::from_mib(1000)),
            capability: None,
            driver: None,
            hollow: false,
        }
    }

    #[test]
    fn the_room_is_what_is_left_of_the_card_or_the_limit() {
        let mut device = card();
        assert_eq!(room(&device, None), Bytes::from_mib(11_000));
        assert_eq!(room(&device, Some(Bytes::from_mib(9000))), Bytes::from_mib(9000));
        assert_eq!(room(&device, Some(Bytes::from_mib(12_000))), Bytes::from_mib(11_000));
        device.kind = DeviceKind::Cpu;
        assert_eq!(room(&device, None), Bytes::from_mib(12_227));
    }

    #[test]
    fn predicted_on_the_card_and_with_the_versions_that_were_measured() {
        let software = MeasuredSoftware {
            torch: "2.9.1+cu128".to_owned(),
            transformers: Some("5.17.0.dev0".to_owned()),
            bitsandbytes: Some("0.43.1".to_owned()),
            ..MeasuredSoftware::default()
        };
        let scenario = as_measured(&Scenario::default(), &software, &card(), None);
        assert_eq!(scenario.software.bitsandbytes, Version::patch(0, 43, 1));
        assert_eq!(
            (scenario.software.torch, scenario.software.transformers),
            (Version::new(2, 9), Version::new(5, 17))
        );
        assert_eq!((scenario.device.gpu.as_str(), scenario.device.memory), ("rtx-5070", Some(Bytes::from_mib(11_000))));
        assert!(Run::new(&scenario).is_ok());

        let unread = MeasuredSoftware { torch: "main".to_owned(), ..MeasuredSoftware::default() };
        let device = MeasuredDevice { kind: DeviceKind::Cpu, ..card() };
        assert_eq!(as_measured(&Scenario::default(), &unread, &device, None), Scenario::default());
    }
}
