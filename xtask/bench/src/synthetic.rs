//! Records that nobody measured, for tests and load: as large and as valid as real ones, on a card that does not exist.

use plimsoll_core::{Measurement, measurement::EXAMPLE};

/// What their card is called.
pub const CARD: &str = "Synthetic card";

/// One of as many different records as there are numbers; the same number is the same record. Their figures differ by
/// a few megabytes, as those of a real card would, and they are of a few thousand different runs.
///
/// # Panics
/// The example is no record.
#[allow(clippy::expect_used, reason = "the example is in the source, and tested")]
pub fn record(number: u64) -> Measurement {
    let mut record = Measurement::from_json(EXAMPLE).expect("the example is a record");
    record.device.name = CARD.to_owned();
    record.software.python = format!("3.{}.{}", 9 + number % 6, number % 31);
    // Another branch of the driver is another neighbourhood: 500 records share one of two thousand.
    record.device.driver = Some(format!("{}.1", 400 + number % 2000));
    if let Some(first) = record.phases.first_mut() {
        // What tells it from every other record.
        first.micros = 1_000_000 + number;
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_valid_and_all_different() {
        let records: Vec<Measurement> = (0..100).map(record).collect();
        assert!(records.iter().all(|record| record.validate().is_empty()));
        let mut ids: Vec<String> = records.iter().map(Measurement::content_id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 100);
        assert_eq!(record(7), record(7));
    }
}
