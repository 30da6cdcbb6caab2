//! What the CUDA context and libraries take of a process, by steps, and what the catalog says of the card.

use std::time::Duration;

use plimsoll_core::catalog::Gpu;
use plimsoll_core::{Bytes, device};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::probe::Where;
use crate::scripts::WORKER;
use crate::worker::{self, Quarters};

/// Importing PyTorch from a cold network disk takes a minute, and libraries are loaded besides.
const PATIENCE: Duration = Duration::from_secs(300);

/// What was measured, in order.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Libraries {
    /// After each first call.
    pub steps: Vec<Step>,
}

/// After one first call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What was called.
    pub step: String,
    /// What the process holds of the card beside PyTorch's own memory: NVML's figure of the card, less that before and what
    /// PyTorch reserved. Absent where NVML does not answer.
    pub beside: Option<Bytes>,
    /// What PyTorch reserved by then.
    pub reserved: Bytes,
    /// Why it could not be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Libraries {
    /// All of it, as far as it can be read.
    pub fn total(&self) -> Option<Bytes> {
        self.steps.iter().rev().find_map(|step| step.beside)
    }
}

/// Asks a process of its own, which ends with it. What cannot be told is left out.
///
/// # Errors
/// When there is no Python to ask.
pub fn measure(place: &Where) -> Result<Libraries, Failure> {
    let python = worker::find(place.python.as_deref())?;
    let quarters = Quarters::new()?;
    let mut command = quarters.script(&python, WORKER)?;
    command.arg("--libraries");
    if let Some(index) = place.index {
        command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").env("CUDA_VISIBLE_DEVICES", index.to_string());
    }
    let answer = worker::ask(command, PATIENCE).unwrap_or_default();
    Ok(Libraries { steps: answer.lines().filter_map(|line| serde_json::from_str(line).ok()).collect() })
}

/// What the catalog says of a card.
pub fn listed(gpu: &Gpu) -> Value {
    let (context, driver) = (device::context(gpu), device::driver_reserve(gpu));
    json!({
        "id": gpu.id, "memory": gpu.memory.saturating_sub(driver.bytes), "driver": driver.bytes,
        "multiprocessors": device::multiprocessors(gpu),
        "capability": gpu.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
        "context": context.bytes, "context_assumed": context.assumed, "context_source": context.source,
    })
}
