//! A record as the database takes it: checked, summed up, with the figures it is judged by.

use plimsoll_core::measurement::{Facet, MeasurementPoint, Metric, Standing};
use plimsoll_core::{Error, Measurement};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::today;

/// Peaks in bytes, in the order of [`Metric::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// What was measured.
    pub measured: [Option<u64>; 3],
    /// What was estimated, where the two are of the same thing.
    pub estimated: [Option<u64>; 3],
}

impl Figures {
    fn of(point: &MeasurementPoint) -> Self {
        // Where there is an error, the figures can be compared.
        let estimated = |metric| point.error(metric).and(point.estimated?.get(metric));
        Self {
            measured: Metric::ALL.map(|metric| point.measured.get(metric).map(|bytes| bytes.get())),
            estimated: Metric::ALL.map(|metric| estimated(metric).map(|bytes| bytes.get())),
        }
    }

    /// [`MeasurementPoint::error`] of the record.
    pub(super) fn error(&self, metric: Metric) -> Option<f64> {
        let measured = self.measured.get(metric as usize).copied().flatten().filter(|bytes| *bytes > 0)?;
        let estimated = self.estimated.get(metric as usize).copied().flatten()?;
        Some((estimated as f64 - measured as f64) / measured as f64)
    }
}

/// A record that may be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// [`Measurement::content_id`].
    pub id: String,
    /// The day it came, UTC.
    pub received: String,
    /// [`Measurement::canonical`].
    pub content: String,
    /// What records of the same run have in common; `None` where the figures are not those of a whole run.
    pub neighbourhood: Option<String>,
    /// In the order of [`Facet::ALL`].
    pub facets: Vec<String>,
    /// What it is judged by.
    pub figures: Figures,
    /// The [`MeasurementPoint`], as JSON.
    pub point: String,
}

impl Entry {
    /// Checks a record and sums it up. It runs the estimate of the scenario: some milliseconds of work.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn new(record: &Measurement) -> Result<Self, Vec<Error>> {
        let problems = record.validate();
        if !problems.is_empty() {
            return Err(problems);
        }
        let point = record.point().map_err(|error| vec![error])?;
        let content = record.canonical();
        Ok(Self {
            id: point.id.clone(),
            received: today(),
            neighbourhood: point.finished.then(|| neighbourhood(record)).flatten(),
            facets: Facet::ALL.iter().map(|facet| facet.of(&point)).collect(),
            figures: Figures::of(&point),
            // Plain structs of texts and numbers always have a JSON form.
            point: serde_json::to_string(&point).unwrap_or_default(),
            content,
        })
    }
}

/// What two records must share for their figures to be the same: the scenario as it ran, the device, the versions,
/// the allocator's settings, and where the process's memory was read. SHA-256 of all of it.
fn neighbourhood(record: &Measurement) -> Option<String> {
    let scenario = record.as_run().ok()?.to_value();
    let (software, device) = (&record.software, &record.device);
    let main = |version: &Option<String>| version.as_deref().map(|v| v.split('.').next().unwrap_or(v).to_owned());
    let mut shared = json!([
        scenario.get("model"),
        scenario.get("input"),
        scenario.get("training"),
        device.kind,
        device.gpu.as_ref().unwrap_or(&device.name),
        // Another branch of the driver has another context.
        main(&device.driver),
        software.torch,
        software.transformers,
        software.os,
        software.wsl,
        record.allocator,
        record.peak.process_source,
    ]);
    // Only where there are several cards, and bitsandbytes: what records without them were told by stays.
    if let (Some(parts), Some(parallel)) = (shared.as_array_mut(), scenario.get("parallel")) {
        parts.push(parallel.clone());
    }
    if let (Some(parts), Some(bitsandbytes)) = (shared.as_array_mut(), &software.bitsandbytes) {
        parts.push(json!(bitsandbytes));
    }
    Some(Sha256::digest(shared.to_string().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// As the database writes it.
pub(super) const fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Accepted => "accepted",
        Standing::Quarantined => "quarantined",
    }
}

/// As the database has it; its own check allows no third.
pub(super) fn stands(text: &str) -> Standing {
    if text == "accepted" { Standing::Accepted } else { Standing::Quarantined }
}
