//! Runs side by side: bars on one scale, timelines on one axis.

use plimsoll_core::Bytes;

use crate::path::Path;
use crate::reading::Reading;
use plimsoll_core::summary::Kind;

/// A run's bar, in percent of the widest.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The stack, from the left: what for, where it begins, how wide it is.
    pub segments: Vec<(Kind, f64, f64)>,
    /// Where the load line of its card lies.
    pub line: f64,
}

/// The scale of them all: the deepest run, or the largest load line.
pub fn scale<'a>(readings: impl IntoIterator<Item = &'a Reading>) -> Bytes {
    readings.into_iter().map(|r| r.process.max(r.load_line)).max().unwrap_or(Bytes::ZERO)
}

/// The bar of a run on a scale.
pub fn bar(reading: &Reading, scale: Bytes) -> Bar {
    let whole = scale.get().max(1) as f64;
    let percent = |bytes: Bytes| bytes.get() as f64 / whole * 100.0;
    let mut left = 0.0;
    let segments = reading
        .parts
        .iter()
        .filter(|part| part.bytes > Bytes::ZERO)
        .map(|part| {
            let (from, width) = (left, percent(part.bytes));
            left += width;
            (part.kind, from, width)
        })
        .collect();
    Bar { segments, line: percent(reading.load_line) }
}

/// The timeline of a run as a path: from the first event to the last across `width`, `scale` bytes in `height`. Runs of
/// different lengths are drawn equally long, so that their phases stand under each other.
pub fn curve(reading: &Reading, scale: Bytes, width: f64, height: f64) -> String {
    let last = reading.points.last().map_or(0, |p| p.event).max(1);
    let whole = scale.get().max(1) as f64;
    let mut path = Path::with_capacity(2 * reading.points.len());
    for (index, point) in reading.points.iter().enumerate() {
        let x = f64::from(point.event) / f64::from(last) * width;
        let y = height - point.total().get() as f64 / whole * height;
        // Each point holds until the next.
        if index == 0 {
            path.to(x, y);
        } else {
            path.across(x);
            path.upright(y);
        }
    }
    path.finish()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Bytes;
    use plimsoll_core::scenario::{Change, Precision};

    use super::{bar, curve, scale};
    use crate::engine::{opening, read};

    #[test]
    fn bars_share_a_scale() {
        let one = read(&opening()).unwrap().0;
        let other = read(&Change::Precision(Precision::Bf16).apply(&opening()).unwrap()).unwrap().0;
        let scale = scale([&one, &other]);
        assert_eq!(scale, one.load_line.max(one.process));
        for reading in [&one, &other] {
            let bar = bar(reading, scale);
            let (_, from, width) = *bar.segments.last().unwrap();
            let whole = reading.process.get() as f64 / scale.get() as f64 * 100.0;
            assert!((from + width - whole).abs() < 1e-6, "a bar is as long as its run is deep");
            assert!((0.0..=100.0).contains(&bar.line));
        }
    }

    #[test]
    fn a_curve_goes_from_edge_to_edge() {
        let reading = read(&opening()).unwrap().0;
        let path = curve(&reading, scale([&reading]), 600.0, 200.0);
        assert!(path.starts_with('M') && path.contains("H600V"), "{path:.40}");
        assert!(!path.contains('-') && !path.contains("NaN"), "nothing lies outside the drawing");
        assert_eq!(scale([]), Bytes::ZERO);
    }
}
