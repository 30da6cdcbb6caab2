//! What the peak is made of, as a table that sums to it.

use std::fmt::Write as _;

use plimsoll_core::Estimate;
use plimsoll_core::estimate::Holding;
use plimsoll_core::summary::{self, Part};

use super::number::{Unit, shares};
use super::{Paint, WIDTH, fit, wrapped};

/// Where the peak is, why it is so high, and what it is made of.
pub fn breakdown(estimate: &Estimate, parts: &[Part], holdings: &[Holding], paint: Paint) -> String {
    let mut out = String::new();
    let process = estimate.peak.process;
    let unit = Unit::of(process);
    let bytes: Vec<u64> = parts.iter().map(|part| part.bytes.get()).collect();
    // Rounded together, so that the rows sum to the last one as they are printed.
    let sizes = shares(&bytes, unit.hundredths(process));
    let tenths = shares(&bytes, 1000);

    let place = summary::place(estimate);
    let _ = writeln!(out, "  {}", paint.strong(&fit(&format!("At the peak: {place}"), WIDTH - 2)));
    for line in wrapped(&summary::cause(estimate, holdings).unwrap_or_default(), WIDTH - 2) {
        let _ = writeln!(out, "  {line}");
    }
    for ((part, size), share) in parts.iter().zip(&sizes).zip(&tenths) {
        if part.bytes.is_zero() {
            continue;
        }
        let line = format!("{:<28}{:>12}{:>5}.{} %", part.kind.label(), unit.show(*size), share / 10, share % 10);
        let line = if part.kind.category().is_some() { line } else { paint.quiet(&line) };
        let _ = writeln!(out, "  {} {line}", paint.cells(part.kind, 1));
    }
    let total = format!("{:<28}{:>12}  100.0 %", "the process", unit.text(process));
    let _ = writeln!(out, "    {}", paint.strong(&total));
    let peak = &estimate.peak;
    let torch = format!("torch reports {} allocated, {} reserved at most", peak.allocated, peak.reserved);
    let _ = writeln!(out, "    {}", paint.quiet(&torch));
    out
}
