//! Records to test with, none of them measured.

use plimsoll_core::{Bytes, Measurement};
use plimsoll_server::store::Entry;
use plimsoll_testkit::synthetic;

/// A record that differs from every other number's, all of the same run.
pub fn alike(number: u64) -> Measurement {
    let mut record = synthetic::record(0);
    record.phases[0].micros += number;
    record
}

/// The same run, with another peak of what was allocated and all that must be at least as high.
pub fn with_peak(number: u64, mib: u64) -> Measurement {
    let mut record = alike(number);
    let peak = Bytes::from_mib(mib);
    record.peak.allocated = Some(peak);
    let subject = record.subject().unwrap() as u32;
    for phase in record.phases.iter_mut().filter(|phase| phase.attempt == subject) {
        phase.peak_allocated = phase.peak_allocated.map(|_| peak);
        phase.end_allocated = phase.end_allocated.map(|end| end.min(peak));
        phase.peak_reserved = phase.peak_reserved.map(|was| was.max(peak));
    }
    record
}

pub fn entry(record: &Measurement) -> Entry {
    Entry::new(record).unwrap_or_else(|errors| panic!("{errors:?}"))
}
