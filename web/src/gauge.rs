//! The main gauge: the hull's stack against the Plimsoll mark, and the ladder of marks beside it.

use plimsoll_core::Bytes;

use crate::number;
use crate::reading::Reading;
use crate::scale::{Scale, Tick};
use crate::spread::spread;
use plimsoll_core::summary::Kind;

/// The least height at which a segment carries its own name, in px.
const NAMED: f64 = 17.0;

/// Width of a letter of a segment's name, in px: the typeface's mean at that size and weight, rounded up.
const LETTER: f64 = 7.0;

/// Width of a figure of the draught scale, in px.
const DIGIT: f64 = 6.8;

/// What frame, scale and the room about them take left of the hull, without the figures, in px.
const SCALE: f64 = 31.0;

/// Left free at both ends of a segment's text and between its two parts, in px.
const BESIDE: f64 = 28.0;

/// The least distance between two labels of the ladder: a target's least height (WCAG 2.2, 2.5.8).
const RUNG: f64 = 26.0;

/// The gauge, ready to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    /// Whole width.
    pub width: f64,
    /// Whole height.
    pub height: f64,
    /// The vertical scale.
    pub scale: Scale,
    /// Ticks of the draught scale.
    pub ticks: Vec<Tick>,
    /// The hull: left edge and width.
    pub hull: (f64, f64),
    /// The stack, from the keel up.
    pub segments: Vec<Segment>,
    /// The water's surface: how deep the run sits.
    pub waterline: f64,
    /// The Plimsoll mark.
    pub mark: Mark,
    /// y of what the card can give at most.
    pub capacity: f64,
    /// x of the ladder's staff.
    pub staff: f64,
    /// The ladder.
    pub rungs: Vec<Rung>,
}

/// One layer of the stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// What for.
    pub kind: Kind,
    /// How much.
    pub bytes: Bytes,
    /// Top edge.
    pub y: f64,
    /// Height.
    pub height: f64,
    /// Its name as far as there is room for it beside its size; `None` where the layer is too thin for either.
    pub name: Option<&'static str>,
}

/// The disc and its bar, centred on the load line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// Centre.
    pub x: f64,
    /// Centre: the load line.
    pub y: f64,
    /// Radius of the disc.
    pub radius: f64,
    /// Half the length of the bar.
    pub reach: f64,
    /// Thickness of disc and bar.
    pub stroke: f64,
}

/// One mark of the ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rung {
    /// Where it truly stands (or the top edge, when beyond).
    pub y: f64,
    /// Where its label stands.
    pub label: f64,
    /// Whether it lies above the drawing.
    pub beyond: bool,
    /// Whether it lies below the load line of the ship: deeper than the run should sit.
    pub deep: bool,
}

impl Gauge {
    /// Lays the gauge out in `width` x `height` px; `rungs` are process peaks, `None` while unknown.
    pub fn new(reading: &Reading, rungs: &[Option<Bytes>], width: f64, height: f64) -> Self {
        let narrow = width < 520.0;
        let (ceiling, bottom) = (34.0, height - 30.0);
        let deepest = grow(reading.capacity, 112).max(grow(reading.process, 106));
        let scale = Scale::new(deepest, bottom, ceiling);

        let ticks = scale.ticks(27.0);
        // The draught's figures stand between the frame and the scale: "1,200" takes more room than "12".
        let digits = ticks.iter().map(|tick| tick.text.chars().count()).max().unwrap_or(0) as f64;
        let hull_left = (SCALE + digits * DIGIT).max(if narrow { 40.0 } else { 52.0 });
        let hull_width = if narrow { (width * 0.24).max(56.0) } else { (width * 0.25).clamp(130.0, 200.0) };
        let mut segments = Vec::with_capacity(reading.parts.len());
        let mut below = Bytes::ZERO;
        for part in reading.parts.iter().filter(|p| p.bytes > Bytes::ZERO) {
            let foot = scale.y(below);
            below = below.checked_add(part.bytes).unwrap_or(below);
            let y = scale.y(below);
            segments.push(Segment {
                kind: part.kind,
                bytes: part.bytes,
                y,
                height: foot - y,
                name: (foot - y >= NAMED && !narrow).then(|| fitting(part.kind, part.bytes, hull_width)),
            });
        }

        let ladder = if narrow { 112.0 } else { 204.0 };
        let staff = width - ladder;
        let middle = (hull_left + hull_width + staff) / 2.0;
        let room = staff - hull_left - hull_width;
        let radius = (room * 0.27).clamp(16.0, 62.0);
        let mark = Mark {
            x: middle,
            y: scale.y(reading.load_line),
            radius,
            reach: (radius * 1.76).min(room / 2.0 - (room * 0.07).min(14.0)).max(4.0),
            stroke: (radius * 0.21).max(4.0),
        };

        let tops: Vec<f64> = rungs.iter().map(|r| r.map_or(bottom, |b| scale.y(b))).collect();
        let wishes: Vec<f64> = tops.iter().map(|y| y.max(ceiling)).collect();
        let labels = spread(&wishes, RUNG, ceiling - 8.0, bottom - 4.0);
        let rungs = rungs
            .iter()
            .zip(tops.iter().zip(labels))
            .map(|(bytes, (&y, label))| Rung {
                y: y.max(ceiling - 10.0),
                label,
                beyond: y < ceiling - 10.0,
                deep: bytes.is_some_and(|b| b > reading.load_line),
            })
            .collect();

        Self {
            width,
            height,
            scale,
            ticks,
            hull: (hull_left, hull_width),
            segments,
            waterline: scale.y(reading.process),
            mark,
            capacity: scale.y(reading.capacity),
            staff,
            rungs,
        }
    }
}

/// `percent` of `bytes`, without overflow.
fn grow(bytes: Bytes, percent: u64) -> Bytes {
    Bytes::new(bytes.get().saturating_mul(percent) / 100)
}

/// The longest name that stands beside the size within the hull without running into it.
fn fitting(kind: Kind, bytes: Bytes, hull: f64) -> &'static str {
    let both = |name: &str| (name.len() + number::gib(bytes).len()) as f64 * LETTER;
    if both(kind.label()) + BESIDE <= hull { kind.label() } else { kind.word() }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Bytes;
    use plimsoll_core::summary::{Kind, Part};

    use super::{Gauge, fitting};
    use crate::reading::{Reading, Standing};

    fn reading(process: u64, capacity: u64) -> Reading {
        Reading {
            standing: Standing::Fits,
            headroom: 0,
            process: Bytes::from_gib(process),
            reserved: Bytes::ZERO,
            allocated: Bytes::ZERO,
            capacity: Bytes::from_gib(capacity),
            load_line: Bytes::from_gib(capacity - 1),
            parameters: 0,
            trainable: 0,
            parts: vec![
                Part { kind: Kind::Weights, bytes: Bytes::from_gib(process - 1) },
                Part { kind: Kind::Inputs, bytes: Bytes::ZERO },
                Part { kind: Kind::Context, bytes: Bytes::from_gib(1) },
            ],
            phases: Vec::new(),
            points: Vec::new(),
            peak: 0,
            holdings: Vec::new(),
            host: Vec::new(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_name_never_runs_into_its_size() {
        let large = Bytes::from_gib(12);
        assert_eq!(fitting(Kind::SavedActivations, large, 200.0), "saved activations");
        assert_eq!(fitting(Kind::SavedActivations, large, 130.0), "saved");
        for kind in Kind::ALL {
            let name = fitting(kind, Bytes::from_gib(999), 130.0);
            assert!(name.len() <= 11, "{name}");
        }
    }

    #[test]
    fn the_stack_ends_at_the_waterline() {
        let gauge = Gauge::new(&reading(8, 12), &[], 640.0, 560.0);
        assert_eq!(gauge.segments.len(), 2);
        let top = gauge.segments.last().map(|s| s.y).unwrap();
        assert!((top - gauge.waterline).abs() < 1e-6);
        assert!(gauge.waterline > gauge.mark.y, "a run above the line lies under the mark");
        assert!(gauge.capacity < gauge.mark.y);
    }

    #[test]
    fn a_run_too_deep_drowns_the_mark() {
        let gauge = Gauge::new(&reading(24, 12), &[], 640.0, 560.0);
        assert!(gauge.waterline < gauge.mark.y);
        assert!(gauge.waterline >= 0.0);
    }

    #[test]
    fn rungs_keep_apart_and_say_when_they_are_beyond() {
        let peaks = [3, 3, 3, 9, 90].map(|n| Some(Bytes::from_gib(n)));
        let gauge = Gauge::new(&reading(8, 12), &peaks, 640.0, 560.0);
        let mut labels: Vec<f64> = gauge.rungs.iter().map(|r| r.label).collect();
        labels.sort_by(f64::total_cmp);
        assert!(labels.windows(2).all(|w| w[1] - w[0] >= 25.999));
        assert_eq!(gauge.rungs.iter().map(|r| r.beyond).collect::<Vec<_>>(), [false, false, false, false, true]);
        assert_eq!(gauge.rungs.iter().map(|r| r.deep).collect::<Vec<_>>(), [false, false, false, false, true]);
    }

    #[test]
    fn every_width_is_drawable() {
        for width in [260.0, 280.0, 519.0, 520.0, 760.0, 1400.0] {
            let gauge = Gauge::new(&reading(8, 12), &[Some(Bytes::from_gib(4))], width, 520.0);
            let hull_right = gauge.hull.0 + gauge.hull.1;
            assert!(gauge.mark.reach > 10.0, "{width}");
            assert!(gauge.mark.x - gauge.mark.reach >= hull_right, "{width}");
            assert!(gauge.mark.x + gauge.mark.reach <= gauge.staff, "{width}");
        }
    }
}
