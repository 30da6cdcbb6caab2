//! Measured phases laid over predicted ones: the peak of each part of the loop, in the first step and the steady one.

use plimsoll_core::estimate::{Estimate, PhaseName};
use plimsoll_core::measurement::{Metric, PHASE_ORDER, PhasePeak, Which};
use plimsoll_core::scenario::Mode;
use plimsoll_core::{Bytes, Measurement};

use crate::scale::{Scale, Tick};

/// Room for the figures and the names, in px.
const LEFT: f64 = 44.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 54.0;

/// More of it where names stand on end.
const TALL_BOTTOM: f64 = 104.0;

/// Columns narrower than this, in px, have their names on end.
const NARROW: f64 = 58.0;

/// Least distance of ticks, in px.
const GAP: f64 = 34.0;

/// One phase of one step, both ways.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which part of the loop.
    pub name: PhaseName,
    /// Of which step.
    pub which: Which,
    /// Whether nothing was trained.
    pub infers: bool,
    /// What was measured.
    pub measured: Bytes,
    /// What is predicted; absent where the engine does not know the phase.
    pub predicted: Option<Bytes>,
}

impl Row {
    /// `backward`.
    pub fn label(&self) -> String {
        self.name.as_str().replace('_', " ")
    }

    /// `step 1`, `steady`; of inference, which has no steps, `first`, `last`.
    pub const fn step(&self) -> &'static str {
        match (self.which, self.infers) {
            (Which::First, false) => "step 1",
            (Which::Steady, false) => "steady",
            (Which::First, true) => "first",
            (Which::Steady, true) => "last",
        }
    }

    /// `(predicted - measured) / measured`.
    pub fn error(&self) -> Option<f64> {
        let (measured, predicted) = (self.measured.get() as f64, self.predicted?.get() as f64);
        (measured > 0.0).then_some((predicted - measured) / measured)
    }
}

/// The phases that were measured, in order. Phases are told of tensors and of the allocator; of the process only the
/// whole run's peak is known.
pub fn rows(record: &Measurement, estimate: Option<&Estimate>, metric: Metric) -> Vec<Row> {
    let read = |peak: PhasePeak| if metric == Metric::Allocated { peak.allocated } else { peak.reserved };
    let infers = record.scenario["training"]["mode"] == Mode::Inference.as_str();
    let mut rows = Vec::new();
    for which in Which::BOTH {
        for name in PHASE_ORDER {
            if let Some(measured) = record.phase_peak(name, which) {
                let predicted = estimate.and_then(|e| e.phase_peak(name, which)).map(read);
                rows.push(Row { name, which, infers, measured: read(measured), predicted });
            }
        }
    }
    rows
}

/// The drawing: columns of what is predicted, and a line of what was measured over them.
#[derive(Clone, Debug, PartialEq)]
pub struct Lay {
    /// Width in px.
    pub width: f64,
    /// Height in px.
    pub height: f64,
    /// x of the plot's edges.
    pub edges: [f64; 2],
    /// y of zero.
    pub foot: f64,
    /// Memory ticks.
    pub ticks: Vec<Tick>,
    /// Whether names stand on end, because columns are narrow.
    pub upright: bool,
    /// A column a row.
    pub columns: Vec<Column>,
    /// The line of what was measured, as an SVG path; a gap between the steps.
    pub line: String,
    /// Where each step begins and ends, and its name.
    pub steps: Vec<(f64, f64, &'static str)>,
}

/// One phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Left edge.
    pub x: f64,
    /// Width.
    pub width: f64,
    /// y of what is predicted.
    pub predicted: Option<f64>,
    /// y of what was measured.
    pub measured: f64,
    /// The phase's name.
    pub label: String,
}

impl Lay {
    /// Lays `rows` out.
    pub fn new(rows: &[Row], width: f64, height: f64) -> Self {
        let (left, right) = (LEFT, width - RIGHT);
        let top = rows.iter().flat_map(|r| [Some(r.measured), r.predicted]).flatten().max().unwrap_or(Bytes::ZERO);
        let top = Bytes::new(top.get().saturating_add(top.get() / 12));
        let breaks = if rows.iter().any(|r| r.which != Which::First) { 1.0 } else { 0.0 };
        // Between the steps half a column is left free.
        let pitch = (right - left) / (rows.len() as f64 + 0.5 * breaks).max(1.0);
        let upright = pitch < NARROW;
        let foot = height - if upright { TALL_BOTTOM } else { BOTTOM };
        let scale = Scale::new(top, foot, TOP);
        let mut columns: Vec<Column> = Vec::new();
        let mut line = String::new();
        let mut steps: Vec<(f64, f64, &'static str)> = Vec::new();
        let mut x = left;
        let mut last = None;
        for row in rows {
            let begins = last != Some(row.which);
            if begins && last.is_some() {
                x += pitch / 2.0;
            }
            last = Some(row.which);
            let measured = scale.y(row.measured);
            columns.push(Column {
                x: x + pitch * 0.08,
                width: pitch * 0.84,
                predicted: row.predicted.map(|bytes| scale.y(bytes)),
                measured,
                label: row.label(),
            });
            let verb = if begins { "M" } else { "L" };
            line.push_str(&format!("{verb}{:.1} {measured:.1}H{:.1}", x + pitch * 0.04, x + pitch * 0.96));
            match steps.last_mut().filter(|_| !begins) {
                Some(step) => step.1 = x + pitch,
                None => steps.push((x, x + pitch, row.step())),
            }
            x += pitch;
        }
        Self { width, height, edges: [left, right], foot, ticks: scale.ticks(GAP), upright, columns, line, steps }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::estimate::Run;
    use plimsoll_core::measurement::EXAMPLE;

    use super::*;

    #[test]
    fn every_measured_phase_has_a_row_and_a_column() {
        let record = Measurement::from_json(EXAMPLE).unwrap();
        let estimate = Run::new(&record.as_run().unwrap()).unwrap().into_estimate();
        let all = rows(&record, Some(&estimate), Metric::Allocated);
        assert!(all.len() > 6 && all.iter().all(|r| r.predicted.is_some()));
        assert!(all.iter().any(|r| r.which == Which::Steady));
        for width in [300.0, 900.0] {
            let lay = Lay::new(&all, width, 300.0);
            assert_eq!(lay.columns.len(), all.len());
            assert_eq!(lay.steps.len(), 2);
            assert!(lay.columns.iter().all(|c| c.x >= 0.0 && c.x + c.width <= width && c.measured >= TOP));
            assert!(lay.columns.windows(2).all(|w| w[0].x + w[0].width <= w[1].x + 1e-6));
        }
        assert!(rows(&record, None, Metric::Reserved).iter().all(|r| r.predicted.is_none()));
        assert_eq!(Lay::new(&[], 300.0, 200.0).columns, []);
    }
}
