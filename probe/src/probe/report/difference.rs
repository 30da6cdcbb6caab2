//! Where the difference comes from: tensors, the allocator, the context; and in which phase it begins.

use std::fmt::Write as _;

use plimsoll_core::Bytes;
use plimsoll_core::estimate::Falling;
use plimsoll_core::measurement::{Outcome, PHASE_ORDER, PhasePeak, Which};

use super::phases::label;
use super::{Report, off, percent, prose, signed};
use crate::view::Paint;

/// From here on two figures part, in hundredths.
const APART_PERCENT: u128 = 1;

/// The difference of the process, split into three parts that sum to it.
pub fn difference(report: &Report<'_>, paint: Paint) -> String {
    let (Some(estimate), Some((_, attempt))) = (report.comparable(), report.subject) else { return String::new() };
    let peak = &report.record.peak;
    let (Some(allocated), Some(reserved)) = (peak.allocated, peak.reserved) else { return String::new() };
    // A run that was broken off has not reached its highest point.
    if attempt.outcome != Outcome::Finished {
        return String::new();
    }
    let told = &estimate.peak;
    let mut out = String::new();
    let _ = writeln!(out, "  {}", paint.strong("Where the difference comes from"));
    let mut row = |name: &str, off: i128, words: &str| {
        let _ = writeln!(out, "  {name:<13}{:>12}  {words}", signed(off));
    };
    row("tensors", off(allocated, told.allocated), &begins(report, |cell| cell.allocated));
    let (rest, told_rest) = (reserved.saturating_sub(allocated), told.reserved.saturating_sub(told.allocated));
    row("fragmentation", off(rest, told_rest), &begins(report, |cell| cell.reserved.saturating_sub(cell.allocated)));
    if let Some(process) = peak.process {
        let (rest, told_rest) = (process.saturating_sub(reserved), told.process.saturating_sub(told.reserved));
        row("context", off(rest, told_rest), &format!("{rest} measured, {told_rest} predicted"));
    }
    let apart = |of: Bytes, from: Bytes| off(of, from).unsigned_abs();
    let gap = |of: [Bytes; 2]| apart(allocated, of[0]) + apart(reserved, of[1]);
    let nearer = |falling: &Falling| gap([falling.allocated, falling.reserved]) < gap([told.allocated, told.reserved]);
    if let Some(falling) = estimate.falling.filter(nearer) {
        out.push_str(&prose(&format!(
            "Where the driver lays each segment below the last, which is its choice, it is {} allocated and {} reserved: {} and {} apart.",
            falling.allocated,
            falling.reserved,
            signed(off(allocated, falling.allocated)),
            signed(off(reserved, falling.reserved))
        )));
    }
    out
}

/// The first phase in which a figure parts from its prediction, in words.
fn begins(report: &Report<'_>, figure: impl Fn(PhasePeak) -> Bytes) -> String {
    let Some(estimate) = report.comparable() else { return String::new() };
    let mut seen = false;
    for which in Which::BOTH {
        for name in PHASE_ORDER {
            let both = report.record.phase_peak(name, which).zip(estimate.phase_peak(name, which));
            let Some((measured, predicted)) = both else { continue };
            seen = true;
            let apart = off(figure(measured), figure(predicted));
            // A share of everything allocated: a percent of next to nothing is nothing.
            if apart.unsigned_abs() * 100 > APART_PERCENT * u128::from(predicted.allocated.get()) {
                let step = match which {
                    Which::First if !report.work().trains() => "",
                    Which::Steady if !report.work().trains() => ", later",
                    Which::First => ", step 1",
                    Which::Steady => ", steady step",
                };
                let phase = label(name);
                let share = percent(apart, predicted.allocated);
                return format!("from {phase}{step}: {}, {share}", signed(apart));
            }
        }
    }
    if seen { format!("within {APART_PERCENT} % in every phase") } else { "phases were not told apart".to_owned() }
}
