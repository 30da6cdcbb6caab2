//! The question in a line, the verdict in a line.

use plimsoll_core::estimate::Verdict;
use plimsoll_core::scenario::{Checkpointing, Levers, Mode, ModelSource, at};
use plimsoll_core::{Bytes, Estimate, Scenario, catalog, shown};

use super::{Paint, WIDTH, fit, wrapped};

/// What was asked.
pub fn question(scenario: &Scenario, paint: Paint) -> String {
    let gpu = catalog::gpu(&scenario.device.gpu).map_or(scenario.device.gpu.as_str(), |g| g.name);
    let title = fit(&format!("{} on {gpu}", model_name(scenario)), WIDTH - 2);
    let mut out = format!("  {}\n", paint.strong(&title));
    for line in wrapped(&recipe(scenario), WIDTH - 2) {
        out.push_str(&format!("  {}\n", paint.quiet(&line)));
    }
    out
}

/// Whether it fits, and by how much.
pub fn verdict(estimate: &Estimate, paint: Paint) -> String {
    // What cuDNN takes of what is to spare nobody knows.
    let open = estimate.convolutions.is_some_and(|c| c.process_high > estimate.device.load_line);
    let distance = match distance(estimate.headroom) {
        distance if open && estimate.headroom >= 0 => format!("{distance}, if cuDNN takes no more"),
        distance => distance,
    };
    let (label, comment) = match estimate.verdict {
        Verdict::Fits => ("FITS", distance),
        Verdict::Tight => ("TIGHT", format!("{distance}, but it runs")),
        Verdict::DoesNotFit => ("DOES NOT FIT", distance),
    };
    let (peak, line) = (estimate.peak.process.to_string(), estimate.device.load_line);
    let sizes = format!("peak {}, load line {line}:", paint.strong(&peak));
    let plain = label.len() + peak.len() + line.to_string().len() + comment.len();
    // What stands between them takes 24 columns. Only absurd sizes need a second line.
    let between = if plain + 24 > WIDTH { "\n  " } else { " " };
    format!("  {}   {sizes}{between}{comment}\n", paint.verdict(estimate.verdict, label))
}

/// Headroom as people say it: `1.2 GiB to spare`, `over by 3 GiB`.
pub fn distance(headroom: i64) -> String {
    let bytes = Bytes::new(headroom.unsigned_abs());
    if headroom < 0 { format!("over by {bytes}") } else { format!("{bytes} to spare") }
}

/// The model, as people call it.
pub fn model_name(scenario: &Scenario) -> String {
    match &scenario.model.source {
        ModelSource::Catalog(id) => catalog::model(id).map_or(id.as_str(), |m| m.name).to_owned(),
        ModelSource::HuggingFace(config) => {
            let model_type = config.get("model_type").and_then(|v| v.as_str()).unwrap_or_default();
            format!("a {model_type} model")
        }
        ModelSource::Family { name, .. } => name.clone(),
        ModelSource::Hull(hull) => {
            let named = hull.name().unwrap_or(hull.hash());
            let sizes: Vec<String> = hull.axes().iter().map(|(name, value)| format!(" {name}={value}")).collect();
            format!("{}{}", shown(named), sizes.concat())
        }
    }
}

/// Batch, precision, optimizer and what else was chosen.
pub fn recipe(scenario: &Scenario) -> String {
    let (input, training) = (&scenario.input, &scenario.training);
    let tokens = input.seq.map(|seq| format!(" x {seq} tokens")).unwrap_or_default();
    let mut parts = vec![format!("batch {}{tokens}", input.batch)];
    let inference = training.mode == Mode::Inference;
    if inference {
        parts.insert(0, "inference".to_owned());
    }
    if let Some(new) = input.max_new_tokens {
        parts.push(format!("{new} new tokens"));
    }
    if training.accumulation > 1 {
        parts.push(format!("accumulated {} times", training.accumulation));
    }
    parts.push(training.precision.to_string());
    if !inference {
        parts.push(format!("{} ({})", training.optimizer, training.optimizer_impl));
    }
    if input.seq.is_some() {
        parts.push(format!("{} attention", training.attention));
    }
    if training.checkpointing != Checkpointing::None {
        parts.push(format!("{} checkpointing", training.checkpointing));
    }
    if let Some(lora) = &training.lora {
        parts.push(format!("LoRA rank {}", lora.rank));
    }
    parts.extend(Levers::of(scenario).told(&TOLD));
    parts.join(", ")
}

/// What the line has words of its own for, or no room for.
const TOLD: [&str; 14] = [
    at::input::batch,
    at::input::seq,
    at::input::target_seq,
    at::input::image,
    at::input::max_new_tokens,
    at::training::precision,
    at::training::optimizer,
    at::training::optimizer_impl,
    at::training::accumulation,
    at::training::checkpointing,
    at::training::attention,
    at::lora::rank,
    at::lora::targets,
    at::device::gpu,
];
