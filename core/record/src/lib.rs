//! The record a probe writes, a server keeps and the planner compares: what one scenario really took.
//!
//! It holds nothing that identifies a person or a machine: no host, user, path, address or serial number, and the day
//! it was taken rather than the moment.

#![forbid(unsafe_code)]

mod apart;
mod checks;
mod content;
mod exchanged;
mod facet;
mod identity;
mod packed;
mod point;
mod problems;
mod ran;
mod rank;
mod read;
mod record;
#[cfg(feature = "schema")]
mod schema;
mod side_by_side;
mod spread;
#[cfg(test)]
mod tests;
mod validate;

pub use exchanged::exchanged;
pub use facet::Facet;
pub use identity::{Known, scrubbed};
pub use packed::PART;
pub use plimsoll_estimate::{PHASE_ORDER, PhasePeak, Which};
pub use point::{MeasurementPoint, Metric, Peaks, Standing};
pub use rank::{BufferKind, MeasuredBuffer, MeasuredRank};
pub use read::TEXT;
pub use record::{
    Allocator, Attempt, DeviceKind, Event, EventKind, MeasuredDevice, MeasuredPeak, MeasuredPhase, MeasuredSoftware,
    MeasuredStep, Measurement, Outcome, ProcessSource, Range, Sample, Speed,
};
#[cfg(feature = "schema")]
pub use schema::schema;
pub use spread::{Group, Spread, groups};

/// Version of the record's format, written as `schema`.
pub const SCHEMA: u32 = 1;

/// Whether a text looks like a record, good or bad, rather than like something else a person may have dropped.
pub fn looks_like_record(text: &str) -> bool {
    ["\"attempts\"", "\"plimsoll\"", "\"taken\""].iter().filter(|key| text.contains(**key)).count() >= 2
}

/// Longest message of an event, in characters.
pub const MESSAGE: usize = 1000;

/// A record as the probe writes it, made by hand for tests and documentation: its card does not exist ("Example card"),
/// its figures are not a measurement.
pub const EXAMPLE: &str = include_str!("example.json");
