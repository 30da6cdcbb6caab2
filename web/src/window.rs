//! A part of the timeline that is looked at closely: which events, and what is alive during them.

use plimsoll_core::Bytes;
use plimsoll_core::estimate::Timeline;
use serde::{Deserialize, Serialize};

use crate::reading::Point;

/// The fewest events that are looked at: a handful of allocations and frees.
pub const LEAST: u32 = 12;

/// Events `from` to `to` of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// How many came before.
    pub from: u32,
    /// How many have come at its end.
    pub to: u32,
}

/// A stretch, and what is alive during it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Which events.
    pub stretch: Stretch,
    /// In order; each holds until the next.
    pub points: Vec<Point>,
    /// Index into `points` of the highest.
    pub peak: usize,
}

impl Stretch {
    /// How many events they are.
    pub const fn events(self) -> u32 {
        self.to.saturating_sub(self.from)
    }

    /// `factor` times as many events of `last` in all, around what stands at the share `at` of it: that stays in place.
    #[must_use]
    pub fn zoomed(self, at: f64, factor: f64, last: u32) -> Self {
        let events = f64::from(self.events());
        let wanted = (events * factor).round().clamp(f64::from(LEAST.min(last)), f64::from(last));
        let centre = f64::from(self.from) + at.clamp(0.0, 1.0) * events;
        let from = (centre - at.clamp(0.0, 1.0) * wanted).round().clamp(0.0, f64::from(last) - wanted);
        // Within 0..=last, by the clamps.
        Self { from: from as u32, to: (from + wanted) as u32 }
    }

    /// As many events, a share of them further on, or back.
    #[must_use]
    pub fn moved(self, share: f64, last: u32) -> Self {
        let events = self.events().min(last);
        let by = share * f64::from(events);
        let by = if by > 0.0 { by.max(1.0) } else { by.min(-1.0) };
        let from = (f64::from(self.from) + by).round().clamp(0.0, f64::from(last - events));
        Self { from: from as u32, to: from as u32 + events }
    }

    /// The part between two shares of it, of [`LEAST`] events at least.
    #[must_use]
    pub fn part(self, one: f64, other: f64, last: u32) -> Self {
        let (low, high) = (one.min(other).clamp(0.0, 1.0), one.max(other).clamp(0.0, 1.0));
        let events = f64::from(self.events());
        let (from, to) = ((f64::from(self.from) + low * events).floor(), (f64::from(self.from) + high * events).ceil());
        let short = (f64::from(LEAST) - (to - from)).max(0.0) / 2.0;
        let from = (from - short).floor().clamp(0.0, f64::from(last.saturating_sub(LEAST)));
        let to = (to + short).ceil().clamp(from + f64::from(LEAST.min(last)), f64::from(last));
        Self { from: from as u32, to: to as u32 }
    }

    /// Whether it is all there is.
    pub const fn is_whole(self, last: u32) -> bool {
        self.from == 0 && self.to >= last
    }
}

impl Window {
    /// Reads a part of a timeline.
    pub fn new(stretch: Stretch, timeline: &Timeline) -> Self {
        Self { stretch, points: timeline.points.iter().map(Point::from).collect(), peak: timeline.peak }
    }

    /// The index of the point that holds after `event` events, or of the nearest there is.
    pub fn at(&self, event: u32) -> usize {
        self.points.partition_point(|point| point.event <= event).saturating_sub(1)
    }

    /// What the event before the point did, in bytes: gained, or given back where negative. `None` where more than one
    /// event lies between the point and the one before it.
    pub fn change(&self, index: usize) -> Option<i64> {
        let (before, now) = (self.points.get(index.checked_sub(1)?)?, self.points.get(index)?);
        let signed = |bytes: Bytes| i64::try_from(bytes.get()).unwrap_or(i64::MAX);
        (now.event == before.event + 1).then(|| signed(now.total()) - signed(before.total()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::{self, opening};

    const WHOLE: Stretch = Stretch { from: 0, to: 1000 };

    #[test]
    fn what_is_under_the_pointer_stays_there() {
        assert_eq!(WHOLE.zoomed(0.5, 0.5, 1000), Stretch { from: 250, to: 750 });
        assert_eq!(WHOLE.zoomed(0.0, 0.1, 1000), Stretch { from: 0, to: 100 });
        assert_eq!(WHOLE.zoomed(1.0, 0.1, 1000), Stretch { from: 900, to: 1000 });
        let near = Stretch { from: 500, to: 520 };
        assert_eq!(near.zoomed(0.5, 0.01, 1000), Stretch { from: 504, to: 516 });
        assert!(near.zoomed(0.5, 1e9, 1000).is_whole(1000));
    }

    #[test]
    fn a_brush_leaves_what_it_swept() {
        assert_eq!(WHOLE.part(0.5, 0.25, 1000), Stretch { from: 250, to: 500 });
        assert_eq!(WHOLE.part(0.5, 0.5, 1000).events(), LEAST);
        assert_eq!(WHOLE.part(2.0, 0.999, 1000), Stretch { from: 988, to: 1000 });
    }

    #[test]
    fn it_moves_along_and_stops_at_the_ends() {
        let part = Stretch { from: 100, to: 200 };
        assert_eq!(part.moved(0.5, 1000), Stretch { from: 150, to: 250 });
        assert_eq!(part.moved(-5.0, 1000), Stretch { from: 0, to: 100 });
        assert_eq!(part.moved(50.0, 1000), Stretch { from: 900, to: 1000 });
        assert_eq!(part.moved(0.001, 1000).from, 101);
    }

    /// At its closest every allocation is a point, and what each did adds up to what is alive.
    #[test]
    fn single_allocations_are_told_apart() {
        let (reading, run) = engine::read(&opening()).unwrap();
        let peak = reading.points[reading.peak].event;
        let stretch = Stretch { from: peak - 10, to: peak + 10 };
        let window = engine::stretch(&run, stretch);
        assert_eq!(window.points.len(), 20);
        assert_eq!(window.points[window.at(peak)], reading.points[reading.peak]);
        assert_eq!(window.peak, window.at(peak), "the highest of it is the peak of all");
        assert_eq!(window.change(0), None);
        let gained = window.change(window.peak).unwrap();
        assert!(gained > 0, "the peak is an allocation: {gained}");
        let sum: i64 = (1..20).filter_map(|index| window.change(index)).sum();
        let ends = window.points[19].total().get() as i64 - window.points[0].total().get() as i64;
        assert_eq!(sum, ends);
    }

    proptest! {
        #[test]
        fn stretches_stay_within_the_run(
            from in 0u32..5000, events in 0u32..5000, last in 1u32..5000, at in -1.0..2.0f64, factor in 0.0..10.0f64,
        ) {
            let start = Stretch { from: from.min(last), to: (from + events).min(last) };
            for next in [start.zoomed(at, factor, last), start.moved(at, last), start.part(at, factor, last)] {
                prop_assert!(next.from <= next.to && next.to <= last, "{next:?} of {last}");
            }
        }
    }
}
