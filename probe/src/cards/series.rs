//! Readings over time: every change is kept, and the peaks survive any thinning.

use plimsoll_core::Bytes;

/// Memory at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Microseconds.
    pub at: u64,
    /// Of the process, where the source tells it.
    pub process: Option<Bytes>,
    /// Of the whole card.
    pub device: Option<Bytes>,
}

impl Point {
    fn same_memory(&self, other: &Self) -> bool {
        (self.process, self.device) == (other.process, other.device)
    }

    /// The larger of the two in each column, at the later's time: what a thinned point stands for.
    fn merged(&self, later: &Self) -> Self {
        let process = self.process.max(later.process);
        // The moment is that of the peak, so that the curve rises where it rose.
        let at = if (later.process, later.device) > (self.process, self.device) { later.at } else { self.at };
        Self { at, process, device: self.device.max(later.device) }
    }
}

/// Points in order of time. A level that lasts is two points, its first and its last.
#[derive(Clone, Debug)]
pub struct Series {
    points: Vec<Point>,
    most: usize,
}

impl Series {
    /// Keeps at most this many points, at least 4: beyond, neighbours are merged.
    pub fn with_room_for(most: usize) -> Self {
        Self { points: Vec::new(), most: most.max(4) }
    }

    /// Adds a point, later than all before.
    pub fn push(&mut self, point: Point) {
        if let [.., before, last] = self.points.as_mut_slice()
            && before.same_memory(last)
            && last.same_memory(&point)
        {
            last.at = point.at;
            return;
        }
        if self.points.len() >= self.most {
            self.points = thinned(&self.points, self.most / 2);
        }
        self.points.push(point);
    }

    /// The points kept.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

/// At most `most` points, at least 2: the first and the last as they are, between them neighbours merged into the larger of
/// each column, so that no peak is lost.
pub fn thinned(points: &[Point], most: usize) -> Vec<Point> {
    if points.len() <= most.max(2) {
        return points.to_vec();
    }
    let (Some((first, rest)), Some(last)) = (points.split_first(), points.last()) else { return Vec::new() };
    let middle = rest.split_last().map_or(rest, |(_, middle)| middle);
    let buckets = most.saturating_sub(2).max(1);
    let mut out = vec![*first];
    for chunk in middle.chunks(middle.len().div_ceil(buckets)) {
        out.extend(chunk.iter().copied().reduce(|a, b| a.merged(&b)));
    }
    out.push(*last);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at: u64, process: u64) -> Point {
        Point { at, process: Some(Bytes::new(process)), device: Some(Bytes::new(process * 2)) }
    }

    fn most(points: &[Point]) -> Option<Bytes> {
        points.iter().filter_map(|p| p.process).max()
    }

    #[test]
    fn a_level_is_two_points() {
        let mut series = Series::with_room_for(100);
        for (at, process) in [(0, 5), (1, 5), (2, 5), (3, 5), (4, 9), (5, 9), (6, 9), (7, 5)] {
            series.push(point(at, process));
        }
        assert_eq!(series.points(), [point(0, 5), point(3, 5), point(4, 9), point(6, 9), point(7, 5)]);
    }

    #[test]
    fn thinning_keeps_peaks_ends_and_order() {
        // A sawtooth with one narrow peak at every place in turn.
        for spike in 0..997 {
            let points: Vec<Point> = (0..997).map(|at| point(at, if at == spike { 1000 } else { at % 7 })).collect();
            let thin = thinned(&points, 50);
            assert!(thin.len() <= 50, "{}", thin.len());
            assert_eq!(most(&thin), Some(Bytes::new(1000)));
            assert_eq!(thin.iter().find(|p| p.process == Some(Bytes::new(1000))).map(|p| p.at), Some(spike));
            assert_eq!((thin.first(), thin.last()), (points.first(), points.last()));
            assert!(thin.is_sorted_by_key(|p| p.at));
        }
    }

    #[test]
    fn short_series_stay_as_they_are() {
        let points = [point(0, 1), point(1, 2), point(2, 1)];
        assert_eq!(thinned(&points, 2000), points);
        assert_eq!(thinned(&[], 2000), []);
        assert!(thinned(&points, 0).len() <= 3);
    }

    #[test]
    fn a_long_series_stays_bounded_without_losing_its_peak() {
        let mut series = Series::with_room_for(64);
        for at in 0..10_000 {
            series.push(point(at, if at == 4321 { 1000 } else { at % 3 }));
        }
        assert!(series.points().len() <= 64);
        assert_eq!(most(series.points()), Some(Bytes::new(1000)));
    }
}
