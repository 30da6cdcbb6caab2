//! What the engine says about the card that was measured.

use plimsoll_core::estimate::{self, Estimate, Run};
use plimsoll_core::measurement::{DeviceKind, MeasuredDevice};
use plimsoll_core::{Bytes, Error, Scenario};
use serde_json::Value;

use crate::guard::Shape;

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
    pub fn new(scenario: &Scenario, device: &MeasuredDevice, limit: Option<Bytes>) -> Self {
        Self { scenario: on_card(scenario, device, limit), comparable: device.kind == DeviceKind::Cuda }
    }

    /// The process's peak at another shape, where it can be compared with what is measured.
    pub fn process(&self, shape: Shape) -> Option<Bytes> {
        if !self.comparable {
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
