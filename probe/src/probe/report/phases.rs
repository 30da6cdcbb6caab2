//! Phase by phase: how high each part of the loop went, in the first step and in the steady one.

use std::fmt::Write as _;

use plimsoll_core::Bytes;
use plimsoll_core::estimate::PhaseName;
use plimsoll_core::measurement::{PHASE_ORDER, Which};

use super::{Report, off, percent};
use crate::session::Work;
use crate::view::{Paint, Unit};

/// A phase in the words people read.
pub fn label(name: PhaseName) -> String {
    name.as_str().replace('_', " ")
}

/// The table: a row a phase, measured, predicted and how far they are apart in both steps.
pub fn phases(report: &Report<'_>, paint: Paint) -> String {
    let all = Which::BOTH
        .iter()
        .flat_map(|which| PHASE_ORDER.iter().filter_map(|name| report.record.phase_peak(*name, *which)));
    let Some(highest) = all.map(|cell| cell.allocated).max() else { return String::new() };
    let unit = Unit::of(highest);
    let estimate = report.comparable();
    let mut out = String::new();
    let title = paint.strong("Allocated by phase");
    let work = report.work();
    let (first, steady) = match work {
        Work::Step => ("step 1".to_owned(), "steady step".to_owned()),
        _ => (format!("{} 1", work.noun()), format!("last {}", work.noun())),
    };
    let _ = writeln!(out, "  {title}{}", paint.quiet(&format!("{first:>17}{steady:>34}")));
    let titles = |predicted| format!("{:>11}{predicted:>12}{:>9}", "measured", "");
    // Only the first run of inference is predicted.
    let both = [titles("predicted"), titles(if work.trains() { "predicted" } else { "" })];
    let _ = writeln!(out, "  {:<11}{}", "", paint.quiet(both.join("  ").trim_end()));
    for name in PHASE_ORDER {
        let mut line = format!("  {:<11}", label(name));
        let mut known = false;
        for which in Which::BOTH {
            let measured = report.record.phase_peak(name, which).map(|cell| cell.allocated);
            let predicted = estimate.and_then(|e| e.phase_peak(name, which)).map(|cell| cell.allocated);
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
