//! Memory over the steps: a stacked area over the phases.

use plimsoll_core::Bytes;

use crate::path::Path;
use crate::reading::{PhaseRow, Point, Reading};
use crate::scale::{Scale, Tick};
use crate::window::Window;
use plimsoll_core::summary::Kind;

/// The least share of the width a phase takes, so that the short ones can still be seen.
const LEAST_SHARE: f64 = 0.004;

/// A letter's width in px at the size phases are labelled in.
const LETTER: f64 = 6.9;

/// The timeline, ready to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Whole width.
    pub width: f64,
    /// Whole height.
    pub height: f64,
    /// Left edge of the plot.
    pub left: f64,
    /// Right edge of the plot.
    pub right: f64,
    /// The vertical scale.
    pub scale: Scale,
    /// Its ticks.
    pub ticks: Vec<Tick>,
    /// One area per kind, lowest first.
    pub areas: Vec<(Kind, String)>,
    /// The phases along the foot.
    pub spans: Vec<Span>,
    /// The steps under them.
    pub steps: Vec<StepSpan>,
    /// x of every point.
    pub xs: Vec<f64>,
    /// y of the load line.
    pub load_line: f64,
    /// y of the card's capacity.
    pub capacity: f64,
    /// y of the process peak.
    pub process: f64,
}

/// One phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Index into [`Reading::phases`].
    pub phase: usize,
    /// Left edge.
    pub x: f64,
    /// Width.
    pub width: f64,
    /// Its name, where there is room.
    pub label: Option<&'static str>,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSpan {
    /// `load`, `step 1`, `step 2`.
    pub label: String,
    /// Left edge.
    pub x: f64,
    /// Width.
    pub width: f64,
}

impl Layout {
    /// Lays the timeline out in `width` x `height` px.
    pub fn new(reading: &Reading, width: f64, height: f64) -> Self {
        let left = if width < 520.0 { 30.0 } else { 40.0 };
        let right = (width - 1.0).max(left + 1.0);
        let (ceiling, bottom) = (26.0, (height - 52.0).max(40.0));
        let most = reading.process.max(reading.load_line);
        let top = Bytes::new(most.get().saturating_mul(106) / 100);
        let scale = Scale::new(top, bottom, ceiling);

        let spans = spans(reading, left, right);
        let xs = positions(reading, &spans, right);
        Self {
            width,
            height,
            left,
            right,
            scale,
            ticks: scale.ticks(34.0),
            areas: areas(&reading.points, reading.part(Kind::Context), &scale, &xs, right),
            steps: steps(reading, &spans),
            spans,
            xs,
            load_line: scale.y(reading.load_line),
            capacity: scale.y(reading.capacity),
            process: scale.y(reading.process),
        }
    }

    /// Lays a part of the timeline out: every event as wide as every other, and the scale from near the lowest to the
    /// highest where what changes would be a thread on what does not.
    pub fn closely(reading: &Reading, window: &Window, width: f64, height: f64) -> Self {
        let context = reading.part(Kind::Context);
        let total = |point: &Point| context.checked_add(point.total()).unwrap_or(context);
        let high = window.points.iter().map(total).max().unwrap_or(context);
        let low = window.points.iter().map(total).min().unwrap_or(context);
        let swing = Bytes::new(high.saturating_sub(low).get().max(high.get() / 1000).max(1));
        let base =
            if low.get() / 3 > swing.get() { low.saturating_sub(Bytes::new(swing.get() / 4)) } else { Bytes::ZERO };
        let top = high.checked_add(Bytes::new(swing.get() / 12)).unwrap_or(high);
        let (ceiling, bottom) = (26.0, (height - 52.0).max(40.0));
        let scale = Scale::between(base, top, bottom, ceiling);
        let ticks = scale.ticks(34.0);
        let digits = ticks.iter().map(|tick| tick.text.len()).max().unwrap_or(0) as f64;
        let left = (digits * LETTER + 10.0).max(if width < 520.0 { 30.0 } else { 40.0 });
        let right = (width - 1.0).max(left + 1.0);
        let stretch = window.stretch;
        let unit = (right - left) / f64::from(stretch.events().max(1));
        let x = |event: u32| left + f64::from(event.saturating_sub(stretch.from).min(stretch.events())) * unit;
        // An event's change is drawn where it happens; what it leaves holds from there on.
        let xs: Vec<f64> = window.points.iter().map(|point| x(point.event.saturating_sub(1))).collect();
        let spans = spans_within(window, &reading.phases, x);
        Self {
            width,
            height,
            left,
            right,
            scale,
            ticks,
            areas: areas(&window.points, context, &scale, &xs, right),
            steps: steps(reading, &spans),
            spans,
            xs,
            load_line: scale.y(reading.load_line),
            capacity: scale.y(reading.capacity),
            process: scale.y(reading.process),
        }
    }

    /// Whether the names of the load line and of the process' peak would stand over one another: then one begins at the left.
    pub fn labels_meet(&self) -> bool {
        const TEXT: f64 = 14.0;
        self.shows(self.load_line) && self.shows(self.process) && (self.load_line - self.process).abs() < TEXT
    }

    /// Whether a level stands within the drawing.
    pub fn shows(&self, y: f64) -> bool {
        y > 14.0 && y < self.scale.bottom
    }

    /// How far along the drawing `x` is, from 0 to 1.
    pub fn share(&self, x: f64) -> f64 {
        ((x - self.left) / (self.right - self.left)).clamp(0.0, 1.0)
    }

    /// The point that holds at `x`.
    pub fn at(&self, x: f64) -> usize {
        self.xs.partition_point(|&p| p <= x).saturating_sub(1)
    }
}

/// Widths by number of events, none thinner than [`LEAST_SHARE`] of the whole.
fn spans(reading: &Reading, left: f64, right: f64) -> Vec<Span> {
    let mut events: Vec<f64> = vec![0.0; reading.phases.len()];
    let mut before = 0;
    for point in &reading.points {
        if let Some(slot) = events.get_mut(point.phase as usize) {
            *slot += f64::from(point.event.saturating_sub(before));
        }
        before = point.event;
    }
    let total: f64 = events.iter().sum::<f64>().max(1.0);
    // With very many micro-batches the least share shrinks, else the short phases would be all there is.
    let least = (total * LEAST_SHARE).min(total / (2.0 * events.len().max(1) as f64));
    let weights: Vec<f64> = events.iter().map(|e| e.max(least)).collect();
    let unit = (right - left) / weights.iter().sum::<f64>().max(1.0);
    let mut x = left;
    reading
        .phases
        .iter()
        .zip(weights)
        .enumerate()
        .map(|(phase, (row, weight))| {
            let width = weight * unit;
            let label = short(&row.name);
            let span = Span { phase, x, width, label: (label.len() as f64 * LETTER + 8.0 < width).then_some(label) };
            x += width;
            span
        })
        .collect()
}

/// The phases that a part of the timeline has events of.
fn spans_within(window: &Window, phases: &[PhaseRow], x: impl Fn(u32) -> f64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut begin = window.stretch.from;
    for (index, point) in window.points.iter().enumerate() {
        // Of points that stand for several events, the last of a phase stands at its end.
        let ends = window.points.get(index + 1).is_none_or(|next| next.phase != point.phase);
        if let (true, Some(row)) = (ends, phases.get(point.phase as usize)) {
            let (from, to) = (x(begin), x(point.event));
            let label = short(&row.name);
            let fits = label.len() as f64 * LETTER + 8.0 < to - from;
            spans.push(Span { phase: point.phase as usize, x: from, width: to - from, label: fits.then_some(label) });
            begin = point.event;
        }
    }
    spans
}

/// The phase's name as the foot of the timeline has it.
fn short(name: &str) -> &'static str {
    match name {
        "load" => "load",
        "input" => "input",
        "forward" => "forward",
        "backward" => "backward",
        "clip" => "clip",
        "optimizer" => "optimizer",
        "zero_grad" => "zero_grad",
        "prefill" => "prefill",
        "decode" => "decode",
        _ => "other",
    }
}

/// x of every point: within its phase's span, by its event.
fn positions(reading: &Reading, spans: &[Span], right: f64) -> Vec<f64> {
    // First and last event of every phase; a phase starts where the one before ended.
    let mut ends: Vec<u32> = vec![0; spans.len()];
    for point in &reading.points {
        if let Some(end) = ends.get_mut(point.phase as usize) {
            *end = (*end).max(point.event);
        }
    }
    let mut begins = Vec::with_capacity(ends.len());
    let mut before = 0;
    for end in &mut ends {
        begins.push(before);
        *end = (*end).max(before);
        before = *end;
    }
    let mut last = f64::MIN;
    reading
        .points
        .iter()
        .map(|point| {
            let phase = point.phase as usize;
            let (Some(span), Some(&begin), Some(&end)) = (spans.get(phase), begins.get(phase), ends.get(phase)) else {
                return right;
            };
            let inside = f64::from(point.event.saturating_sub(begin)) / f64::from((end - begin).max(1));
            // Never backwards, whatever the stream says: the cursor searches these.
            last = (span.x + inside * span.width).min(right).max(last);
            last
        })
        .collect()
}

/// The stacked areas; what lies outside PyTorch (the context) is the constant band at the foot.
fn areas(points: &[Point], context: Bytes, scale: &Scale, xs: &[f64], right: f64) -> Vec<(Kind, String)> {
    let Some(&start) = xs.first() else {
        return Vec::new();
    };
    let mut areas = Vec::with_capacity(Kind::LEDGER + 1);
    if context > Bytes::ZERO {
        let mut path = Path::with_capacity(4);
        path.to(start, scale.bottom);
        path.across(right);
        path.upright(scale.y(context));
        path.across(start);
        path.close();
        areas.push((Kind::Context, path.finish()));
    }
    let mut floor: Vec<f64> = vec![scale.y(context); xs.len()];
    let mut sums: Vec<u64> = vec![context.get(); xs.len()];
    for (index, kind) in Kind::ALL.into_iter().take(Kind::LEDGER).enumerate() {
        let mut any = false;
        let roof: Vec<f64> = points
            .iter()
            .zip(&mut sums)
            .map(|(point, sum)| {
                let bytes = point.live.get(index).copied().unwrap_or(0);
                any |= bytes > 0;
                *sum = sum.saturating_add(bytes);
                scale.y(Bytes::new(*sum))
            })
            .collect();
        if any {
            areas.push((kind, band(xs, &floor, &roof, start, right)));
        }
        floor = roof;
    }
    areas
}

/// The area between two step functions.
fn band(xs: &[f64], floor: &[f64], roof: &[f64], start: f64, right: f64) -> String {
    let mut path = Path::with_capacity(xs.len() * 2);
    path.to(start, floor.first().copied().unwrap_or(0.0));
    let mut y = f64::NAN;
    for (&x, &top) in xs.iter().zip(roof) {
        if top != y {
            path.across(x);
            path.upright(top);
            y = top;
        }
    }
    path.across(right);
    let mut y = f64::NAN;
    let mut edge = right;
    for (&x, &low) in xs.iter().zip(floor).rev() {
        if low != y {
            path.across(edge);
            path.upright(low);
            y = low;
        }
        edge = x;
    }
    path.across(start);
    path.close();
    path.finish()
}

/// Consecutive phases of one step, joined.
fn steps(reading: &Reading, spans: &[Span]) -> Vec<StepSpan> {
    let mut steps: Vec<(Option<u32>, StepSpan)> = Vec::new();
    for span in spans {
        let Some(row) = reading.phases.get(span.phase) else { continue };
        match steps.last_mut() {
            Some((step, joined)) if *step == row.step => joined.width += span.width,
            _ => {
                let label = row.step.map_or_else(String::new, |n| format!("step {n}"));
                steps.push((row.step, StepSpan { label, x: span.x, width: span.width }));
            }
        }
    }
    steps.into_iter().map(|(_, step)| step).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Bytes;
    use proptest::prelude::*;

    use super::Layout;
    use plimsoll_core::summary::Kind;
    use plimsoll_core::summary::Part;

    use crate::reading::{PhaseRow, Point, Reading, Standing};
    use crate::window::{Stretch, Window};

    fn reading(points: &[(u32, u32, u64)], phases: usize) -> Reading {
        let points = points.iter().map(|&(event, phase, gib)| Point {
            event,
            phase,
            live: [gib << 30, 0, 0, 0, 0, gib << 29, 0, 0, 0],
            op: String::new(),
            module: String::new(),
        });
        Reading {
            standing: Standing::Fits,
            headroom: 0,
            process: Bytes::from_gib(10),
            reserved: Bytes::from_gib(9),
            allocated: Bytes::from_gib(9),
            capacity: Bytes::from_gib(12),
            load_line: Bytes::from_gib(11),
            parameters: 0,
            trainable: 0,
            parts: vec![Part { kind: Kind::Context, bytes: Bytes::from_gib(1) }],
            phases: (0..phases)
                .map(|i| PhaseRow {
                    name: "forward".to_owned(),
                    step: (i > 0).then_some(1 + i as u32 / 3),
                    micro_batch: None,
                    peak: Bytes::ZERO,
                    end: Bytes::ZERO,
                    end_reserved: Bytes::ZERO,
                })
                .collect(),
            points: points.collect(),
            peak: 2,
            holdings: Vec::new(),
            cause: String::new(),
            fleet: Vec::new(),
            roles: Vec::new(),
            host: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn step() -> Reading {
        reading(&[(1, 0, 1), (50, 0, 2), (60, 1, 6), (90, 1, 3), (100, 2, 4), (140, 3, 1)], 4)
    }

    #[test]
    fn phases_fill_the_width_in_order() {
        let layout = Layout::new(&step(), 800.0, 300.0);
        assert_eq!(layout.spans.len(), 4);
        assert_eq!(layout.spans[0].x, layout.left);
        for pair in layout.spans.windows(2) {
            assert!((pair[0].x + pair[0].width - pair[1].x).abs() < 1e-6);
        }
        let end = layout.spans.last().map(|s| s.x + s.width).unwrap();
        assert!((end - layout.right).abs() < 1e-6);
        assert_eq!(layout.steps.len(), 3);
    }

    #[test]
    fn the_point_under_the_pointer_is_the_one_that_holds() {
        let layout = Layout::new(&step(), 800.0, 300.0);
        for (index, &x) in layout.xs.iter().enumerate() {
            assert_eq!(layout.at(x), index);
        }
        assert_eq!(layout.at(-50.0), 0);
        assert_eq!(layout.at(5000.0), 5);
    }

    #[test]
    fn names_of_levels_do_not_stand_over_one_another() {
        let at = |process| {
            let reading = Reading { process, ..step() };
            Layout::new(&reading, 800.0, 300.0).labels_meet()
        };
        assert!(!at(Bytes::from_gib(9)));
        let line = step().load_line;
        assert!(at(line) && at(line + Bytes::from_mib(100)) && at(line.saturating_sub(Bytes::from_mib(100))));
    }

    #[test]
    fn areas_stand_on_one_another() {
        let layout = Layout::new(&step(), 800.0, 300.0);
        let kinds: Vec<_> = layout.areas.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [Kind::Context, Kind::Weights, Kind::SavedActivations]);
        assert!(layout.areas.iter().all(|(_, path)| path.starts_with('M') && path.ends_with('Z')));
        assert!(layout.load_line > layout.capacity);
    }

    /// Twelve events at the end of a phase of twenty GiB: each as wide as the next, on a scale that shows what they do.
    #[test]
    fn a_part_is_drawn_closely() {
        let whole = step();
        let point = |event: u32, phase: u32, bytes: u64| Point {
            event,
            phase,
            live: [(20 << 30) + bytes, 0, 0, 0, 0, 0, 0, 0, 0],
            op: String::new(),
            module: String::new(),
        };
        let points: Vec<Point> =
            (51..=62).map(|event| point(event, u32::from(event > 60), u64::from(event) << 20)).collect();
        let window = Window { stretch: Stretch { from: 50, to: 62 }, points, peak: 11 };
        let layout = Layout::closely(&whole, &window, 800.0, 300.0);
        assert!(layout.scale.base > Bytes::from_gib(19) && layout.left > 40.0);
        let widths: Vec<f64> = layout.xs.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(widths.iter().all(|width| (width - widths[0]).abs() < 1e-6));
        assert_eq!(layout.xs[0], layout.left);
        assert_eq!(layout.spans.iter().map(|span| span.phase).collect::<Vec<_>>(), [0, 1]);
        let end = layout.spans.last().map(|span| span.x + span.width).unwrap();
        assert!((layout.spans[0].x - layout.left).abs() < 1e-6 && (end - layout.right).abs() < 1e-6);
        for (index, &x) in layout.xs.iter().enumerate() {
            assert_eq!(layout.at(x + 1.0), index);
        }
        assert!(!layout.shows(layout.load_line), "the line lies far below what is looked at");
        assert!((layout.share(layout.left), layout.share(layout.right)) == (0.0, 1.0));
    }

    #[test]
    fn nothing_to_draw_is_drawn_as_nothing() {
        let layout = Layout::new(&reading(&[], 0), 300.0, 200.0);
        assert!(layout.areas.is_empty() && layout.spans.is_empty() && layout.xs.is_empty());
        assert_eq!(layout.at(100.0), 0);
    }

    proptest! {
        #[test]
        fn any_stream_lays_out(
            points in prop::collection::vec((0u32..5000, 0u32..9, 0u64..200), 0..60),
            phases in 0usize..9,
            width in 200.0..1600.0f64,
        ) {
            let layout = Layout::new(&reading(&points, phases), width, 260.0);
            prop_assert_eq!(layout.xs.len(), points.len());
            prop_assert!(layout.xs.iter().all(|x| x.is_finite()));
        }
    }
}
