//! The training loop phase by phase: how high each part goes, and what it leaves.

use std::fmt::Write as _;

use plimsoll_core::estimate::{Phase, PhaseName};
use plimsoll_core::{Bytes, Estimate};

use super::Paint;
use super::number::Unit;

/// One phase of one step, its micro-batches together.
struct Cell {
    peak: Bytes,
    end: Bytes,
}

/// The table: a row a phase, a pair of columns a step.
pub fn phases(estimate: &Estimate, paint: Paint) -> String {
    let Some(highest) = estimate.phases.iter().map(|p| p.peak_requested).max() else { return String::new() };
    let unit = Unit::of(highest);
    let mut out = String::new();
    // Inference has one step, which is not called so.
    let steps = if estimate.phases.iter().any(|p| p.step == Some(2)) { 2 } else { 1 };
    let titles = match steps {
        1 => format!("{:>16}{:>14}", "peak", "after"),
        _ => format!("{:>16}{:>14}{:>20}{:>14}", "step 1: peak", "after", "step 2: peak", "after"),
    };
    let _ = writeln!(out, "  {}{}", paint.strong("Live tensors"), paint.quiet(&titles));
    let mut marked = false;
    for name in ORDER {
        let cells = [cell(&estimate.phases, name, 1), cell(&estimate.phases, name, 2)];
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let mut line = format!("  {:<12}", name.as_str().replace('_', " "));
        for (index, cell) in cells.iter().enumerate() {
            // Columns: 16 and 14 wide in step 1, 20 and 14 in step 2; the mark takes two of the second.
            let wide = if index == 0 { 16 } else { 18 };
            let Some(cell) = cell else {
                let _ = write!(line, "{:>wide$}{:>14}  ", "", "");
                continue;
            };
            let peak = format!("{:>wide$}", unit.text(cell.peak));
            let is_peak = cell.peak == highest && !marked;
            marked |= is_peak;
            line.push_str(&if is_peak { paint.strong(&peak) } else { peak });
            line.push_str(if is_peak { " <" } else { "  " });
            let _ = write!(line, "{:>12}", unit.text(cell.end));
            if index == 0 {
                line.push_str("  ");
            }
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// As the loop runs them.
const ORDER: [PhaseName; 9] = [
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

/// `load` belongs to no step and stands in the first column.
fn cell(phases: &[Phase], name: PhaseName, step: u32) -> Option<Cell> {
    let of_step: Vec<&Phase> = phases.iter().filter(|p| p.name == name && p.step.unwrap_or(1) == step).collect();
    let peak = of_step.iter().map(|p| p.peak_requested).max()?;
    Some(Cell { peak, end: of_step.last()?.end_requested })
}
