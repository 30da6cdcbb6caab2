//! Phase by phase: how high each part of the loop went, in the first step and in the steady one.

use std::fmt::Write as _;

use plimsoll_core::Bytes;
use plimsoll_core::estimate::{Estimate, PhaseName};
use plimsoll_core::measurement::MeasuredPhase;

use super::{Report, off, percent};
use crate::view::{Paint, Unit};

/// As the loop runs them.
pub const ORDER: [PhaseName; 9] = [
    PhaseName::Load,
    PhaseName::Input,
    PhaseName::Prefill,
    PhaseName::Decode,
    PhaseName::Forward,
    PhaseName::Backward,
    PhaseName::Clip,
    PhaseName::Optimizer,
    PhaseName::ZeroGrad,
];

/// A phase in the words people read.
pub fn label(name: PhaseName) -> String {
    name.as_str().replace('_', " ")
}

/// Which of the two steps that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Step 1, and what comes before it.
    First,
    /// The last one.
    Steady,
}

impl Which {
    pub const BOTH: [Self; 2] = [Self::First, Self::Steady];
}

/// One phase of one step, its micro-batches together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub allocated: Bytes,
    pub reserved: Bytes,
}

/// What was measured of a phase.
pub fn measured(report: &Report<'_>, name: PhaseName, which: Which) -> Option<Cell> {
    let (index, _) = report.subject?;
    // The model is loaded once, within the first attempt.
    let attempt = if name == PhaseName::Load { 0 } else { u32::try_from(index).ok()? };
    let of_it = || report.record.phases.iter().filter(move |p| p.name == name && p.attempt == attempt);
    let last = of_it().filter_map(|p| p.step).max();
    let step = match which {
        Which::First => 1,
        Which::Steady => last.filter(|step| *step > 1)?,
    };
    let cells = of_it().filter(|p| p.step.unwrap_or(1) == step).filter_map(cell);
    cells.reduce(|a, b| Cell { allocated: a.allocated.max(b.allocated), reserved: a.reserved.max(b.reserved) })
}

fn cell(phase: &MeasuredPhase) -> Option<Cell> {
    Some(Cell { allocated: phase.peak_allocated?, reserved: phase.peak_reserved? })
}

/// What was predicted of it: the estimate's second step is its steady one.
pub fn predicted(estimate: &Estimate, name: PhaseName, which: Which) -> Option<Cell> {
    let step = match which {
        Which::First => 1,
        Which::Steady => 2,
    };
    let of_it = estimate.phases.iter().filter(|p| p.name == name && p.step.unwrap_or(1) == step);
    let cells = of_it.map(|p| Cell { allocated: p.peak_allocated, reserved: p.peak_reserved });
    cells.reduce(|a, b| Cell { allocated: a.allocated.max(b.allocated), reserved: a.reserved.max(b.reserved) })
}

/// The table: a row a phase, measured, predicted and how far they are apart in both steps.
pub fn phases(report: &Report<'_>, paint: Paint) -> String {
    let all = Which::BOTH.iter().flat_map(|which| ORDER.iter().filter_map(|name| measured(report, *name, *which)));
    let Some(highest) = all.map(|cell| cell.allocated).max() else { return String::new() };
    let unit = Unit::of(highest);
    let estimate = report.comparable();
    let mut out = String::new();
    let title = paint.strong("Allocated by phase");
    let _ = writeln!(out, "  {title}{}", paint.quiet(&format!("{:>17}{:>34}", "step 1", "steady step")));
    let titles = format!("{:>11}{:>12}{:>9}", "measured", "predicted", "");
    let _ = writeln!(out, "  {:<11}{}", "", paint.quiet(format!("{titles}  {titles}").trim_end()));
    for name in ORDER {
        let mut line = format!("  {:<11}", label(name));
        let mut known = false;
        for which in Which::BOTH {
            let measured = measured(report, name, which).map(|cell| cell.allocated);
            let predicted = estimate.and_then(|e| predicted(e, name, which)).map(|cell| cell.allocated);
            known |= measured.is_some();
            let text = |bytes: Option<Bytes>| bytes.map(|b| unit.text(b)).unwrap_or_default();
            let apart = match (measured, predicted) {
                (Some(m), Some(p)) => percent(off(m, p), p),
                _ => String::new(),
            };
            let predicted = if measured.is_some() { text(predicted) } else { String::new() };
            let _ = write!(line, "{:>11}{predicted:>12}{apart:>9}  ", text(measured));
        }
        if known {
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
    out
}
