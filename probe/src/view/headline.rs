//! The question in a line, the verdict in a line.

use std::fmt::Write as _;

use plimsoll_core::estimate::Verdict;
use plimsoll_core::scenario::ModelSource;
use plimsoll_core::{Bytes, Scenario, catalog};

use super::{Paint, Report, WIDTH, fit};

/// What was asked, and whether it fits.
pub fn headline(report: &Report<'_>, paint: Paint) -> String {
    let (scenario, estimate) = (report.scenario, report.estimate);
    let mut out = String::new();
    let gpu = catalog::gpu(&scenario.device.gpu).map_or(scenario.device.gpu.as_str(), |g| g.name);
    let title = fit(&format!("{} on {gpu}", model_name(scenario)), WIDTH - 2);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "  {}", paint.strong(&title));
    let _ = writeln!(out, "  {}", paint.quiet(&fit(&recipe(scenario), WIDTH - 2)));

    let verdict = estimate.verdict;
    let line = estimate.device.load_line;
    let distance = Bytes::new(estimate.headroom.unsigned_abs());
    let comment = match (verdict, estimate.headroom < 0) {
        (_, false) => format!("{distance} to spare"),
        (Verdict::DoesNotFit, true) => format!("{distance} too much"),
        (_, true) => format!("{distance} below the line, but it runs"),
    };
    let label = match verdict {
        Verdict::Fits => "FITS",
        Verdict::Tight => "TIGHT",
        Verdict::DoesNotFit => "DOES NOT FIT",
    };
    let _ = writeln!(
        out,
        "\n  {}  {} of {line}: {}",
        paint.verdict(verdict, label),
        paint.strong(&estimate.peak.process.to_string()),
        comment,
    );
    out
}

fn model_name(scenario: &Scenario) -> String {
    match &scenario.model.source {
        ModelSource::Catalog(id) => catalog::model(id).map_or(id.as_str(), |m| m.name).to_owned(),
        ModelSource::HuggingFace(config) => {
            let model_type = config.get("model_type").and_then(|v| v.as_str()).unwrap_or_default();
            format!("a {model_type} model")
        }
        ModelSource::Family { name, .. } => name.clone(),
    }
}

fn recipe(scenario: &Scenario) -> String {
    let (input, training) = (&scenario.input, &scenario.training);
    let mut parts = vec![match input.seq {
        Some(seq) => format!("batch {} x {seq} tokens", input.batch),
        None => format!("batch {}", input.batch),
    }];
    if training.accumulation > 1 {
        parts.push(format!("x {} accumulated", training.accumulation));
    }
    parts.push(training.precision.to_string());
    parts.push(format!("{} ({})", training.optimizer, training.optimizer_impl));
    if input.seq.is_some() {
        parts.push(format!("{} attention", training.attention));
    }
    if training.checkpointing.as_str() != "none" {
        parts.push(format!("{} checkpointing", training.checkpointing));
    }
    if let Some(lora) = &training.lora {
        parts.push(format!("LoRA rank {}", lora.rank));
    }
    parts.join(", ").replace(", x", " x")
}
