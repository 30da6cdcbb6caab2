//! Measured across, estimated up: on the diagonal the estimate was right.

use plimsoll_core::measurement::{Metric, Standing};

use super::Entry;
use super::axis::{Axis, Tick};

/// Room for the figures beside the axes, in px.
const LEFT: f64 = 44.0;
const BOTTOM: f64 = 46.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;

/// Least distance of ticks, in px.
const GAP: f64 = 42.0;

/// Most dots drawn: more than can be told apart.
pub const DOTS: usize = 2000;

/// Where everything stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Scatter {
    /// Width of the drawing in px.
    pub width: f64,
    /// Its height.
    pub height: f64,
    /// The plot's edges: left, right, top, bottom.
    pub plot: [f64; 4],
    /// Ticks of both axes: the same sizes.
    pub across: Vec<Tick>,
    /// Ticks going up.
    pub up: Vec<Tick>,
    /// Where the estimate is right: x1, y1, x2, y2.
    pub diagonal: [f64; 4],
    /// Dots, in the order of the entries.
    pub dots: Vec<Dot>,
    /// Comparable entries that are not drawn because there are too many.
    pub left_out: usize,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Dot {
    /// Its record.
    pub id: String,
    /// Measured.
    pub x: f64,
    /// Estimated.
    pub y: f64,
    /// `(estimated - measured) / measured`.
    pub error: f64,
    /// Whether it is kept out of the figures.
    pub quarantined: bool,
}

impl Scatter {
    /// Lays out the entries that can be compared; a square as large as the width allows.
    pub fn new(entries: &[&Entry], metric: Metric, width: f64) -> Self {
        let height = (width - LEFT - RIGHT).clamp(180.0, 460.0) + TOP + BOTTOM;
        let (left, right, top, bottom) = (LEFT, width - RIGHT, TOP, height - BOTTOM);
        let compared: Vec<_> = entries
            .iter()
            .filter_map(|entry| {
                let point = &entry.point;
                let error = point.error(metric)?;
                Some((entry, point.measured.get(metric)?, point.estimated?.get(metric)?, error))
            })
            .collect();
        let sizes = compared.iter().flat_map(|(_, measured, estimated, _)| [*measured, *estimated]);
        let across = Axis::around(sizes, left, right);
        let up = across.along(bottom, top);
        let left_out = compared.len().saturating_sub(DOTS);
        let dots = compared
            .iter()
            .take(DOTS)
            .map(|(entry, measured, estimated, error)| Dot {
                id: entry.point.id.clone(),
                x: across.at(*measured),
                y: up.at(*estimated),
                error: *error,
                quarantined: entry.point.standing == Standing::Quarantined,
            })
            .collect();
        Self {
            width,
            height,
            plot: [left, right, top, bottom],
            across: across.ticks(GAP),
            up: up.ticks(GAP),
            diagonal: [left, bottom, right, top],
            dots,
            left_out,
        }
    }

    /// The dot in a direction from another, for the arrow keys: the nearest whose way is mostly that one.
    pub fn towards(&self, from: &str, dx: f64, dy: f64) -> Option<&Dot> {
        let start = self.dots.iter().find(|d| d.id == from)?;
        let ahead = self.dots.iter().filter(|d| d.id != from).filter_map(|dot| {
            let (x, y) = (dot.x - start.x, dot.y - start.y);
            let along = x * dx + y * dy;
            let aside = (x * dy - y * dx).abs();
            (along > 0.0 && aside <= along * 1.5).then_some((along + 2.0 * aside, dot))
        });
        ahead.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, dot)| dot)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::point;
    use super::super::{Entry, Origin};
    use super::*;

    fn entries() -> Vec<Entry> {
        let of = |id, measured, estimated| Entry { point: point(id, measured, estimated), origin: Origin::Shipped };
        vec![of("low", 2, 2), of("high", 40, 40), of("over", 8, 16), of("under", 16, 8)]
    }

    #[test]
    fn a_right_estimate_is_on_the_diagonal() {
        let entries = entries();
        let all: Vec<&Entry> = entries.iter().collect();
        for width in [260.0, 500.0, 900.0] {
            let chart = Scatter::new(&all, Metric::Process, width);
            let [left, right, top, bottom] = chart.plot;
            let on = |dot: &Dot| (dot.x - left) / (right - left) - (bottom - dot.y) / (bottom - top);
            assert!(on(&chart.dots[0]).abs() < 1e-9 && on(&chart.dots[1]).abs() < 1e-9);
            // Above the diagonal the estimate is too high.
            assert!(on(&chart.dots[2]) < 0.0 && on(&chart.dots[3]) > 0.0);
            assert!(chart.dots.iter().all(|d| d.x >= left && d.x <= right && d.y >= top && d.y <= bottom));
        }
    }

    #[test]
    fn what_cannot_be_compared_is_not_drawn() {
        let mut entries = entries();
        entries[0].point.finished = false;
        entries[1].point.estimated = None;
        let all: Vec<&Entry> = entries.iter().collect();
        assert_eq!(Scatter::new(&all, Metric::Allocated, 500.0).dots.len(), 2);
        assert_eq!(Scatter::new(&[], Metric::Allocated, 500.0).dots, []);
    }

    #[test]
    fn arrow_keys_go_where_they_point() {
        let entries = entries();
        let all: Vec<&Entry> = entries.iter().collect();
        let chart = Scatter::new(&all, Metric::Process, 600.0);
        let to = |from, dx, dy| chart.towards(from, dx, dy).map(|d| d.id.as_str());
        assert_eq!(to("low", 1.0, 0.0), Some("under"));
        assert_eq!(to("low", 0.0, -1.0), Some("over"));
        assert_eq!(to("high", 0.0, 1.0), Some("under"));
        assert_eq!(to("low", -1.0, 0.0), None);
    }
}
