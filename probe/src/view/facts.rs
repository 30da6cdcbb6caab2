//! The largest batch, the parameters, and what else is worth knowing.

use std::fmt::Write as _;

use plimsoll_core::estimate::{PhaseName, StepWork};
use plimsoll_core::{Bytes, Estimate, summary};

use super::{Paint, WIDTH, grouped, wrapped};

/// The largest batch and the parameters.
pub fn facts(estimate: &Estimate, paint: Paint) -> String {
    let mut out = String::new();
    let batch = match estimate.max_batch {
        None => None,
        Some(0) => Some("none, not even one sample".to_owned()),
        Some(n) => Some(grouped(n)),
    };
    if let Some(batch) = batch {
        let _ = writeln!(out, "  Largest batch that fits   {}", paint.strong(&batch));
    }
    let parameters = estimate.parameters;
    let trained = if estimate.phases.iter().all(|p| p.name != PhaseName::Backward) {
        String::new()
    } else if parameters.trainable == parameters.total {
        " (all trained)".to_owned()
    } else {
        format!(" ({} trained)", grouped(parameters.trainable))
    };
    let _ = writeln!(out, "  Parameters                {}{trained}", grouped(parameters.total));
    out.push_str(&listed(summary::roles(estimate)));
    out.push_str(&listed(summary::host(estimate)));
    out.push_str(&work(&estimate.work));
    out
}

/// What the machine's own memory holds of several cards, or what other cards than the first do.
fn listed(lines: Vec<(String, String)>) -> String {
    let mut out = String::new();
    for (at, (what, figure)) in lines.into_iter().enumerate() {
        // The first names the whole; what follows are its parts.
        if at == 0 {
            for (line, text) in wrapped(&figure, WIDTH - 28).into_iter().enumerate() {
                let label = if line == 0 { what.as_str() } else { "" };
                let _ = writeln!(out, "  {label:<25} {text}");
            }
        } else {
            for (line, text) in wrapped(&format!("{what}: {figure}"), WIDTH - 30).into_iter().enumerate() {
                let indent = if line == 0 { 28 } else { 30 };
                let _ = writeln!(out, "{:indent$}{text}", "");
            }
        }
    }
    out
}

/// What a step computes and moves, phase by phase.
pub fn work(work: &StepWork) -> String {
    let mut out = String::new();
    // A recording says nothing of what its forward computes: the optimizer alone would pass for a step.
    if work.is_none() {
        return out;
    }
    let phases = [("forward", &work.forward), ("backward", &work.backward), ("optimizer", &work.optimizer)];
    let mut label = "Work of a step";
    for (name, phase) in phases.into_iter().filter(|(_, phase)| !phase.is_none()) {
        let flops = match phase.total_flops() {
            0 => String::new(),
            flops => format!("{}, ", operations(flops)),
        };
        let moved = Bytes::new(phase.read.get().saturating_add(phase.written.get()));
        let _ = writeln!(out, "  {label:<25} {name}: {flops}{moved} moved");
        label = "";
    }
    out
}

/// Floating-point operations with three digits.
fn operations(flops: u64) -> String {
    const UNITS: [&str; 6] = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"];
    let mut value = flops as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// The estimate's warnings.
pub fn notes(warnings: &[String], paint: Paint) -> String {
    let mut out = String::new();
    for warning in warnings {
        let mut label = paint.strong("note:");
        for line in wrapped(warning, WIDTH - 8) {
            let _ = writeln!(out, "  {label} {line}");
            label = "     ".to_owned();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::operations;

    #[test]
    fn operations_have_three_digits() {
        let of = [0, 999, 1000, 12_345, 999_600, 1_500_000_000_000, 5_000_000_000_000_000_000].map(operations);
        assert_eq!(of, ["0 FLOP", "999 FLOP", "1.00 kFLOP", "12.3 kFLOP", "1.00 MFLOP", "1.50 TFLOP", "5000 PFLOP"]);
    }
}
