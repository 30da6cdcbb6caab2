//! What the peak is made of, as a table that sums to it.

use std::fmt::Write as _;

use plimsoll_core::{Bytes, Estimate};

use super::number::{Unit, plain_op, shares};
use super::stack::Layer;
use super::{Paint, WIDTH, fit};

/// Where the peak is, and what it is made of.
pub fn breakdown(estimate: &Estimate, layers: &[(Layer, Bytes)], paint: Paint) -> String {
    let mut out = String::new();
    let process = estimate.peak.process;
    let unit = Unit::of(process);
    let parts: Vec<u64> = layers.iter().map(|(_, bytes)| bytes.get()).collect();
    // Rounded together, so that the rows sum to the last one as they are printed.
    let sizes = shares(&parts, unit.hundredths(process));
    let tenths = shares(&parts, 1000);

    let peak = &estimate.peak;
    let mut place = format!("{} of step {}", peak.phase.as_str(), peak.step);
    if peak.step == 0 {
        place = peak.phase.as_str().to_owned();
    }
    if !peak.op.is_empty() {
        let _ = write!(place, ", {}", plain_op(&peak.op));
    }
    if !peak.module.is_empty() {
        let _ = write!(place, " in {}", peak.module);
    }
    let _ = writeln!(out, "  {}", paint.strong(&fit(&format!("At the peak: {place}"), WIDTH - 2)));
    for (((layer, bytes), size), share) in layers.iter().zip(&sizes).zip(&tenths) {
        if bytes.get() == 0 {
            continue;
        }
        let line = format!("{:<28}{:>12}{:>5}.{} %", layer.label(), unit.show(*size), share / 10, share % 10);
        let line = if matches!(layer, Layer::Tensors(_)) { line } else { paint.quiet(&line) };
        let _ = writeln!(out, "  {} {line}", paint.cells(*layer, 1));
    }
    let total = format!("{:<28}{:>12}  100.0 %", "the process", unit.text(process));
    let _ = writeln!(out, "    {}", paint.strong(&total));
    let torch = format!("torch reports {} allocated, {} reserved at most", peak.allocated, peak.reserved);
    let _ = writeln!(out, "    {}", paint.quiet(&torch));
    out
}
