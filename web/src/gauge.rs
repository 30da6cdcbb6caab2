//! The main gauge: the hull's stack against the Plimsoll mark, and the ladder of marks beside it.

use plimsoll_core::Bytes;

use crate::number;
use crate::reading::Reading;
use crate::scale::{Scale, Tick};
use crate::spread::spread;
use plimsoll_core::summary::{Kind, Part};

/// The least height at which a segment carries words on one line, and on two, in px.
const NAMED: (f64, f64) = (17.0, 33.0);

/// Width of a letter of a segment's name, in px: the typeface's mean at that size and weight, rounded up.
const LETTER: f64 = 7.0;

/// The same in the ladder, and that of its heavier first line, in px; and how much smaller it is written where it is narrow.
const LADDER_LETTER: (f64, f64) = (6.8, 7.4);
const SMALLER: f64 = 12.0 / 13.0;

/// Left free at the ladder's ends and between a name and its figure, in px.
const LADDER_BESIDE: f64 = 8.0;

/// Where the ladder's words begin, from its staff, and where its figures end, from the frame, in px: wide and narrow.
const LADDER_EDGES: ((f64, f64), (f64, f64)) = ((44.0, 16.0), (22.0, 12.0));

/// Width in px below which the drawing has less air about its marks.
pub const NARROW: f64 = 520.0;

/// Width of a figure of the draught scale, in px.
const DIGIT: f64 = 6.8;

/// What frame, scale and the room about them take left of the hull, without the figures, in px.
const SCALE: f64 = 31.0;

/// Left free at both ends of a segment's text, and between its two parts, in px.
const BESIDE: (f64, f64) = (20.0, 8.0);

/// What the deck's line takes to either side, in px.
const DECK: f64 = 3.0;

/// How near the surface may come to the middle of a figure of the draught scale, in px.
const SURF: f64 = 11.0;

/// From the frame to where the drawing begins, in px.
pub const INSET: f64 = 7.0;

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
    /// Where the surface begins: beside the draught's figures where it would run through one of them.
    pub shore: f64,
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
    /// Where the ladder's names begin, and where its figures end.
    pub columns: (f64, f64),
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
    /// What is written in it.
    pub words: Words,
    /// The middle of what is written.
    pub middle: f64,
}

/// What there is room for in a layer of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// Its name and its size on one line.
    Beside(&'static str),
    /// Its name, and its size on a line below.
    Below(&'static str),
    /// Its name alone.
    Alone(&'static str),
    /// Its size alone.
    Figure,
    /// Nothing.
    None,
}

/// What the ladder is asked to show: a neighbour's names and its process peak, `None` while unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wish {
    /// Its name.
    pub label: &'static str,
    /// Its name where there is little room.
    pub short: &'static str,
    /// How deep it would sit.
    pub peak: Option<Bytes>,
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
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// Its name, as long as there is room for.
    pub name: &'static str,
    /// Its figure, with an arrow where the mark stands beyond the drawing; empty while unknown.
    pub figure: String,
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
    /// Lays the gauge out in `width` x `height` px; the first of `rungs` is the run itself.
    pub fn new(reading: &Reading, rungs: &[Wish], width: f64, height: f64) -> Self {
        let narrow = width < NARROW;
        let (ceiling, bottom) = (34.0, height - 30.0);
        let deepest = grow(reading.capacity, 112).max(grow(reading.process, 106));
        let scale = Scale::new(deepest, bottom, ceiling);

        let ticks = scale.ticks(27.0);
        // The draught's figures stand between the frame and the scale: "1,200" takes more room than "12".
        let digits = ticks.iter().map(|tick| tick.text.chars().count()).max().unwrap_or(0) as f64;
        let hull_left = (SCALE + digits * DIGIT).max(if narrow { 40.0 } else { 52.0 });
        let hull_width = if narrow { (width * 0.24).max(56.0) } else { (width * 0.25).clamp(130.0, 200.0) };
        let mut segments = Vec::with_capacity(reading.parts.len());
        for (part, y, foot) in layers(&reading.parts, &scale) {
            // The deck runs across the hull: words stand in the larger part of the layer that it cuts.
            let deck = scale.y(reading.capacity);
            let (top, foot_free) = match (deck - y, foot - deck) {
                (over, under) if over <= -DECK || under <= -DECK => (y, foot),
                (over, under) if over > under => (y, deck - DECK),
                _ => (deck + DECK, foot),
            };
            segments.push(Segment {
                kind: part.kind,
                bytes: part.bytes,
                y,
                height: foot - y,
                words: fitting(part.kind, part.bytes, hull_width, foot_free - top),
                middle: f64::midpoint(top, foot_free),
            });
        }

        let ladder = if narrow { (width * 0.4).clamp(112.0, 180.0) } else { 204.0 };
        let staff = width - ladder;
        let (from, to) = if narrow { LADDER_EDGES.1 } else { LADDER_EDGES.0 };
        let columns = (staff + from, width - to);
        let middle = (hull_left + hull_width + staff) / 2.0;
        let room = staff - hull_left - hull_width;
        let line = scale.y(reading.load_line);
        // Where the line lies low the disc is smaller: it stays within the frame.
        let radius = (room * 0.27).clamp(16.0, 62.0).min((height - INSET - 3.0 - line).max(16.0));
        let mark = Mark {
            x: middle,
            y: line,
            radius,
            reach: (radius * 1.76).min(room / 2.0 - (room * 0.07).min(14.0)).max(4.0),
            stroke: (radius * 0.21).max(4.0),
        };

        let tops: Vec<f64> = rungs.iter().map(|r| r.peak.map_or(bottom, |b| scale.y(b))).collect();
        let wishes: Vec<f64> = tops.iter().map(|y| y.max(ceiling)).collect();
        let labels = spread(&wishes, RUNG, ceiling - 8.0, bottom - 4.0);
        let marks: Vec<(bool, Option<Bytes>)> =
            tops.iter().zip(rungs).map(|(&y, rung)| (y < ceiling - 10.0, rung.peak)).collect();
        let words = written(rungs, &marks, (columns.1 - columns.0) / if narrow { SMALLER } else { 1.0 });
        let rungs = rungs
            .iter()
            .zip(words)
            .zip(tops.iter().zip(labels))
            .map(|((rung, (name, figure)), (&y, label))| Rung {
                name,
                figure,
                y: y.max(ceiling - 10.0),
                label,
                beyond: y < ceiling - 10.0,
                deep: rung.peak.is_some_and(|b| b > reading.load_line),
            })
            .collect();

        let waterline = scale.y(reading.process);
        let crossed = ticks.iter().any(|tick| (tick.y - waterline).abs() < SURF);
        Self {
            width,
            height,
            scale,
            ticks,
            shore: if crossed { hull_left - 14.0 } else { INSET },
            hull: (hull_left, hull_width),
            segments,
            waterline,
            mark,
            capacity: scale.y(reading.capacity),
            staff,
            columns,
            rungs,
        }
    }
}

/// The layers of a stack that are not empty, each with its top and its foot, from the keel up.
pub(crate) fn layers(parts: &[Part], scale: &Scale) -> Vec<(Part, f64, f64)> {
    let mut below = Bytes::ZERO;
    let layer = |part: &Part| {
        let foot = scale.y(below);
        below = below.checked_add(part.bytes).unwrap_or(below);
        (*part, scale.y(below), foot)
    };
    parts.iter().filter(|part| part.bytes > Bytes::ZERO).map(layer).collect()
}

/// `percent` of `bytes`, without overflow.
pub(crate) fn grow(bytes: Bytes, percent: u64) -> Bytes {
    Bytes::new(bytes.get().saturating_mul(percent) / 100)
}

/// The most that stands within a layer of the hull without running into anything.
fn fitting(kind: Kind, bytes: Bytes, hull: f64, height: f64) -> Words {
    let room = hull - BESIDE.0;
    let long = |text: &str| text.chars().count() as f64 * LETTER;
    let figure = long(&number::gib(bytes));
    let names = [kind.label(), kind.word()];
    let with = |beside: f64| names.into_iter().find(|name| long(name) + beside <= room);
    if height < NAMED.0 {
        return Words::None;
    }
    match (with(figure + BESIDE.1), with(0.0)) {
        (Some(name), _) => Words::Beside(name),
        (None, Some(name)) if height >= NAMED.1 && figure <= room => Words::Below(name),
        (None, Some(name)) => Words::Alone(name),
        (None, None) if figure <= room => Words::Figure,
        (None, None) => Words::None,
    }
}

/// Name and figure of every mark of the ladder within `room` px: the figures with as many decimals as all of them have
/// room for, and the names as long as there is room beside them.
fn written(rungs: &[Wish], marks: &[(bool, Option<Bytes>)], room: f64) -> Vec<(&'static str, String)> {
    let letter = |index: usize| if index == 0 { LADDER_LETTER.1 } else { LADDER_LETTER.0 };
    let text = |places: usize| -> Vec<String> {
        let figure = |&(beyond, peak): &(bool, Option<Bytes>)| {
            let arrow = if beyond { " \u{2191}" } else { "" };
            peak.map_or_else(String::new, |peak| format!("{}{arrow}", number::gib_to(peak, places)))
        };
        marks.iter().map(figure).collect()
    };
    let left = |index: usize, figure: &str| room - figure.chars().count() as f64 * letter(index) - LADDER_BESIDE;
    let long = |index: usize, name: &str| name.chars().count() as f64 * letter(index);
    let fits = |figures: &[String]| {
        let mut all = rungs.iter().zip(figures).enumerate();
        all.all(|(index, (rung, figure))| long(index, rung.short) <= left(index, figure))
    };
    // Where not all have room, each that has keeps its own, if need be without the arrow.
    let each = || -> Vec<String> {
        let own = |(index, (rung, figure)): (usize, (&Wish, String))| {
            let bare = figure.split(' ').next().unwrap_or_default().to_owned();
            [figure, bare].into_iter().find(|figure| long(index, rung.short) <= left(index, figure)).unwrap_or_default()
        };
        rungs.iter().zip(text(0)).enumerate().map(own).collect()
    };
    let figures = (0..=2).rev().map(text).find(|figures| fits(figures)).unwrap_or_else(each);
    let name = |(index, (rung, figure)): (usize, (&Wish, String))| {
        let name = if long(index, rung.label) <= left(index, &figure) { rung.label } else { rung.short };
        (name, figure)
    };
    rungs.iter().zip(figures).enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Bytes;
    use plimsoll_core::summary::{Kind, Part};

    use super::{Gauge, LADDER_LETTER, LETTER, Wish, Words, fitting};
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
            cause: String::new(),
            fleet: Vec::new(),
            roles: Vec::new(),
            host: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn wish(peak: u64) -> Wish {
        Wish { label: "no checkpointing", short: "no checkp.", peak: Some(Bytes::from_gib(peak)) }
    }

    #[test]
    fn a_name_never_runs_into_its_size() {
        let large = Bytes::from_gib(12);
        assert_eq!(fitting(Kind::SavedActivations, large, 200.0, 20.0), Words::Beside("saved activations"));
        assert_eq!(fitting(Kind::SavedActivations, large, 130.0, 20.0), Words::Beside("saved"));
        assert_eq!(fitting(Kind::SavedActivations, large, 76.0, 40.0), Words::Below("saved"));
        assert_eq!(fitting(Kind::SavedActivations, large, 76.0, 20.0), Words::Alone("saved"));
        assert_eq!(fitting(Kind::SavedActivations, large, 50.0, 20.0), Words::None);
        assert_eq!(fitting(Kind::SavedActivations, large, 200.0, 12.0), Words::None);
        for kind in Kind::ALL {
            for hull in [56.0, 72.0, 84.0, 130.0, 200.0] {
                let words = fitting(kind, Bytes::from_gib(999), hull, 60.0);
                let taken = match words {
                    Words::Beside(name) => name.len() as f64 * LETTER + 6.0 * LETTER + 8.0,
                    Words::Below(name) | Words::Alone(name) => name.len() as f64 * LETTER,
                    Words::Figure => 6.0 * LETTER,
                    Words::None => 0.0,
                };
                assert!(taken <= hull - 20.0, "{words:?} in {hull}");
            }
        }
    }

    /// Whatever the ratio of the run to its card, and however narrow the page.
    #[test]
    fn a_rung_keeps_its_figure_at_any_width_and_ratio() {
        for width in [272.0, 288.0, 320.0, 342.0, 358.0, 420.0, 512.0, 519.0, 520.0, 640.0, 900.0] {
            for peaks in [[3, 4, 9], [14, 120, 90], [163, 1367, 17_000], [800, 93, 400_000]] {
                let rungs: Vec<Wish> = peaks.into_iter().map(wish).collect();
                let gauge = Gauge::new(&reading(peaks[0], 12), &rungs, width, 440.0);
                let room = gauge.columns.1 - gauge.columns.0;
                for (index, rung) in gauge.rungs.iter().enumerate() {
                    let letter = if index == 0 { LADDER_LETTER.1 } else { LADDER_LETTER.0 };
                    let letter = letter * if width < super::NARROW { super::SMALLER } else { 1.0 };
                    let taken = (rung.name.chars().count() + rung.figure.chars().count()) as f64 * letter;
                    // A window of 390 px leaves the drawing 342.
                    let room_enough = width >= 342.0 && peaks[index] < 10_000;
                    assert!(!rung.figure.is_empty() || !room_enough, "{width} {peaks:?}");
                    assert!(taken <= room + 0.01, "{width} {peaks:?}: {rung:?} in {room}");
                }
            }
        }
    }

    /// Seventy billion numbers on a laptop's card: the line lies at the keel, and the deck within the first layer.
    #[test]
    fn a_run_of_many_times_the_card_keeps_its_words_and_its_frame() {
        for (process, width, height) in
            [(182, 496.0, 440.0), (1367, 640.0, 584.0), (17_000, 358.0, 440.0), (163, 800.0, 584.0)]
        {
            let gauge = Gauge::new(&reading(process, 12), &[], width, height);
            assert!(gauge.mark.y + gauge.mark.radius <= height - super::INSET, "{process}: {:?}", gauge.mark);
            for segment in gauge.segments.iter().filter(|s| s.words != Words::None) {
                assert!((segment.middle - gauge.capacity).abs() >= 8.5 + super::DECK - 1e-9, "{process}: {segment:?}");
                assert!(segment.middle > segment.y && segment.middle < segment.y + segment.height);
            }
            let crossed = gauge.ticks.iter().any(|tick| (tick.y - gauge.waterline).abs() < super::SURF);
            assert_eq!(gauge.shore > super::INSET, crossed);
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
        let peaks = [3, 3, 3, 9, 90].map(wish);
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
            let gauge = Gauge::new(&reading(8, 12), &[wish(4)], width, 520.0);
            let hull_right = gauge.hull.0 + gauge.hull.1;
            assert!(gauge.mark.reach > 10.0, "{width}");
            assert!(gauge.mark.x - gauge.mark.reach >= hull_right, "{width}");
            assert!(gauge.mark.x + gauge.mark.reach <= gauge.staff, "{width}");
        }
    }
}
