//! A measurement as text for people: 80 columns, what was measured beside what was predicted.

pub mod progress;

use plimsoll_core::Measurement;

use crate::scenario::Asked;
use crate::view::Paint;

/// The whole report.
pub fn report(record: &Measurement, _: &Asked, _: Paint) -> String {
    format!("{:?}\n", record.peak)
}
