//! Records that nobody measured, for tests and load: as large and as valid as real ones, on a card that does not exist.

use plimsoll_core::{Measurement, measurement::EXAMPLE};

/// What their card is called.
pub const CARD: &str = "Synthetic card";

/// Different runs: every so many records have the same one, and are neighbours.
const RUNS: u64 = 2000;

/// What the numbers of records are added to, in microseconds.
const MICROS: u64 = 1_000_000_000;

/// The first branch of the driver; another branch is another run.
const BRANCH: u64 = 4000;

/// One of as many different records as there are numbers; the same number is the same record.
///
/// # Panics
/// The example is no record.
#[allow(clippy::expect_used, reason = "the example is in the source, and tested")]
pub fn record(number: u64) -> Measurement {
    let mut record = Measurement::from_json(EXAMPLE).expect("the example is a record");
    record.device.name = CARD.to_owned();
    record.device.driver = Some(format!("{}.1", BRANCH + number % RUNS));
    if let Some(first) = record.phases.first_mut() {
        first.micros = MICROS + number;
    }
    record
}

/// Writes records fast: the same text, but for what tells them apart.
#[derive(Clone, Debug)]
pub struct Template {
    parts: [String; 3],
}

impl Default for Template {
    fn default() -> Self {
        Self::new()
    }
}

impl Template {
    /// Of [`record`].
    pub fn new() -> Self {
        let text = record(0).canonical();
        let (before, rest) = text.split_once(&format!("{BRANCH}.1")).unwrap_or((&text, ""));
        let (between, after) = rest.split_once(&MICROS.to_string()).unwrap_or((rest, ""));
        Self { parts: [before, between, after].map(str::to_owned) }
    }

    /// [`Measurement::canonical`] of [`record`].
    pub fn write(&self, number: u64) -> String {
        let [before, between, after] = &self.parts;
        format!("{before}{}.1{between}{}{after}", BRANCH + number % RUNS, MICROS + number)
    }
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

    #[test]
    fn the_template_writes_them_to_the_byte() {
        let template = Template::new();
        for number in [0, 1, 1999, 2000, 123_456_789] {
            assert_eq!(template.write(number), record(number).canonical());
        }
    }
}
