//! What a card read so far, one mark for each reading.

use std::collections::VecDeque;

use plimsoll_core::Bytes;

use crate::cards::Reading;

/// More marks than a screen has columns.
const MARKS: usize = 512;

/// The last marks, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    marks: VecDeque<Mark>,
    peak: Option<Bytes>,
    /// The most that was in use since the last reading.
    meanwhile: Option<Bytes>,
}

/// One reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The most in use since the reading before.
    pub used: Option<Bytes>,
    /// Utilisation in percent.
    pub utilization: Option<u8>,
}

impl History {
    /// Adds a reading.
    pub fn add(&mut self, reading: &Reading) {
        self.glance(reading.used);
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark { used: self.meanwhile.take(), utilization: reading.load.utilization });
    }

    /// Notes what is in use between two readings.
    pub fn glance(&mut self, used: Option<Bytes>) {
        self.meanwhile = self.meanwhile.max(used);
        self.peak = self.peak.max(used);
    }

    /// The newest marks, at most `most`, oldest first.
    pub fn last(&self, most: usize) -> impl Iterator<Item = &Mark> {
        self.marks.range(self.marks.len().saturating_sub(most)..)
    }

    /// The most that was ever in use.
    pub const fn peak(&self) -> Option<Bytes> {
        self.peak
    }

    /// How many marks there are.
    pub fn len(&self) -> usize {
        self.marks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(used: u64) -> Reading {
        Reading { used: Some(Bytes::new(used)), ..Reading::default() }
    }

    #[test]
    fn what_happens_between_two_readings_is_not_missed() {
        let mut history = History::default();
        history.add(&reading(1));
        for used in [2, 9, 3] {
            history.glance(Some(Bytes::new(used)));
        }
        history.add(&reading(4));
        history.add(&reading(4));
        let used: Vec<u64> = history.last(10).filter_map(|mark| mark.used).map(Bytes::get).collect();
        assert_eq!(used, [1, 9, 4]);
        assert_eq!(history.peak(), Some(Bytes::new(9)));
        assert_eq!(history.last(1).count(), 1);
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let mut history = History::default();
        for n in 0..2000 {
            history.add(&reading(n));
        }
        assert_eq!(history.len(), MARKS);
        assert_eq!(history.last(1).next().and_then(|mark| mark.used), Some(Bytes::new(1999)));
        assert_eq!(history.peak(), Some(Bytes::new(1999)));
    }
}
