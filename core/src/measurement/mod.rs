//! The record a probe writes, a server keeps and the planner compares: what one scenario really took.
//!
//! It holds nothing that identifies a person or a machine: no host, user, path, address or serial number, and the day
//! it was taken rather than the moment.

mod record;

pub use record::{
    Allocator, Attempt, DeviceKind, Event, EventKind, MeasuredDevice, MeasuredPeak, MeasuredPhase, MeasuredSoftware,
    MeasuredStep, Measurement, Outcome, ProcessSource, Range, Sample, Speed,
};

/// Version of the record's format, written as `schema`.
pub const SCHEMA: u32 = 1;
