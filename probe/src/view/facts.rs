//! The largest batch, the parameters, and what else is worth knowing.

use std::fmt::Write as _;

use plimsoll_core::Estimate;
use plimsoll_core::estimate::PhaseName;

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
    out
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
