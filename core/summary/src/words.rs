//! The run and its verdict in words.

use plimsoll_catalog as catalog;
use plimsoll_estimate::{Estimate, Verdict};
use plimsoll_ground::{Bytes, shown};
use plimsoll_scenario::{Checkpointing, Levers, Mode, ModelSource, Scenario, at};

/// The model, as people call it.
pub fn model_name(scenario: &Scenario) -> String {
    match &scenario.model.source {
        ModelSource::Catalog(id) => catalog::model(id).map_or(id.as_str(), |m| m.name).to_owned(),
        ModelSource::HuggingFace(config) => {
            let text = |key: &str| config.get(key).and_then(|v| v.as_str()).filter(|text| !text.is_empty());
            let model_type = || format!("a {} model", shown(text("model_type").unwrap_or("nameless")));
            text("_name_or_path").map_or_else(model_type, |name| shown(name).to_string())
        }
        ModelSource::Family { name, .. } => name.clone(),
        ModelSource::Hull(hull) => {
            let named = hull.name().unwrap_or(hull.hash());
            let sizes: Vec<String> = hull.axes().iter().map(|(name, value)| format!(" {name}={value}")).collect();
            format!("{}{}", shown(named), sizes.concat())
        }
    }
}

/// The card, as people call it.
pub fn card_name(scenario: &Scenario) -> String {
    let id = &scenario.device.gpu;
    catalog::gpu(id).map_or(id.as_str(), |gpu| gpu.name).to_owned()
}

/// Headroom as people say it: `1.20 GiB to spare`, `over by 3.00 GiB`.
pub fn distance(headroom: i64) -> String {
    let bytes = Bytes::new(headroom.unsigned_abs());
    if headroom < 0 { format!("over by {bytes}") } else { format!("{bytes} to spare") }
}

/// By how much it fits or does not, with what is open about it.
pub fn verdict(estimate: &Estimate) -> String {
    let (line, fits) = (estimate.device.load_line, estimate.headroom >= 0);
    // What cuDNN takes of what is to spare nobody knows; nor what is compiled.
    let open = estimate.convolutions.is_some_and(|c| c.process_high > line);
    let distance = match (distance(estimate.headroom), estimate.compiled) {
        (distance, _) if open && fits => format!("{distance}, if cuDNN takes no more"),
        (distance, Some(c)) if fits && c.process_high > line => format!("{distance}, if compiled it takes no more"),
        (distance, Some(c)) if !fits && c.process_low <= line => format!("{distance}, unless compiled it takes less"),
        (distance, _) => distance,
    };
    if estimate.verdict == Verdict::Tight { format!("{distance}, but it runs") } else { distance }
}

/// Where the peak is: `backward of step 2, mm in model.layers.0`.
pub fn place(estimate: &Estimate) -> String {
    let peak = &estimate.peak;
    let mut place = phase(peak.phase.as_str());
    if peak.step > 0 {
        place.push_str(&format!(" of step {}", peak.step));
    }
    // The node of the graph behind the op's name is for those who look closer.
    let op = peak.op.split_once('@').map_or(peak.op.as_str(), |(op, _)| op);
    if !op.is_empty() {
        place.push_str(&format!(", {op}"));
    }
    if !peak.module.is_empty() {
        place.push_str(&format!(" in {}", peak.module));
    }
    place
}

/// `zero grad` for `zero_grad`.
pub fn phase(name: &str) -> String {
    name.replace('_', " ")
}

/// `text` in at most `width` columns, its middle left out when it is longer: both ends of a module's path say something.
pub fn fit(text: &str, width: usize) -> String {
    const GAP: &str = "...";
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let keep = width.saturating_sub(GAP.len());
    let (front, back) = (keep / 2, keep - keep / 2);
    let start: String = text.chars().take(front).collect();
    let end: String = text.chars().skip(count - back).collect();
    format!("{start}{GAP}{end}")
}

/// Words broken into lines of at most `width` columns.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fit(word, width)),
        }
    }
    lines
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

#[cfg(test)]
mod tests {
    use super::{fit, wrapped};

    #[test]
    fn text_that_fits() {
        assert_eq!(fit("model.layers.*.mlp", 20), "model.layers.*.mlp");
        assert_eq!(fit("model.layers.*.mlp.gate_proj", 20), "model.la...gate_proj");
        assert_eq!(fit("abcdef", 3), "...");
        assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), Vec::<String>::new());
    }
}
