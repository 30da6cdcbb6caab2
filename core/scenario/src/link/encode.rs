//! From a scenario to its link.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::fragment;
use crate::{KEYS, Lora, ModelSource, Scenario, Training, generation, input, supported};

/// What is escaped in a query: all but letters, digits and what reads well and means nothing there.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b',');

pub(super) fn encode(scenario: &Scenario) -> String {
    let given = scenario.to_value();
    let default = baseline(scenario).to_value();
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let mut tail = String::new();
    match &scenario.model.source {
        ModelSource::Catalog(id) => pairs.push(("model", id.clone())),
        ModelSource::Family { name, keys } => {
            pairs.push(("family", name.clone()));
            for key in supported::family(name).map_or(&[][..], |f| f.keys) {
                if let Some(value) = keys.get(key.name).filter(|v| **v != key.kind.default()) {
                    pairs.push((key.name, text(value)));
                }
            }
        }
        ModelSource::HuggingFace(config) => {
            let name = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
            pairs.push(("hf", name.to_owned()));
            tail = format!("#m={}", fragment::encode(config));
        }
    }
    for key in KEYS.iter().filter(|k| !["model.catalog", "model.family"].contains(&k.path().as_str())) {
        let value = at(&given, key.section, key.name);
        // The rank says that there are adapters at all, so it is always written.
        let wanted = key.name == "lora.rank" || value != at(&default, key.section, key.name);
        if let (Some(value), true) = (value, wanted) {
            pairs.push((key.link, text(value)));
        }
    }
    let pairs: Vec<String> =
        pairs.iter().map(|(name, text)| format!("{name}={}", utf8_percent_encode(text, ESCAPED))).collect();
    format!("?{}{tail}", pairs.join("&"))
}

/// What a link of this model says when it says nothing else.
fn baseline(scenario: &Scenario) -> Scenario {
    let mut baseline = Scenario::of(scenario.model.source.clone());
    let traits = scenario.model.source.traits_for(scenario.model.task);
    baseline.input = input::default(&scenario.model.source, traits);
    if scenario.input.max_new_tokens.is_some() {
        baseline.input = generation::with_new_tokens(baseline.input, &scenario.model, traits, None, false);
    }
    baseline.training = Training::default_of(scenario.training.optimizer, &scenario.software);
    baseline.training.optimizer = Training::default().optimizer;
    // An encoder-decoder's decoder has as many tokens as its encoder when nothing else is said.
    baseline.input.target_seq = baseline.input.target_seq.and(scenario.input.seq);
    baseline.training.lora = scenario.training.lora.as_ref().map(|_| Lora::default());
    baseline
}

fn at<'a>(value: &'a Value, section: &str, name: &str) -> Option<&'a Value> {
    name.split('.').try_fold(value.get(section)?, |place, step| place.get(step))
}

/// A value as [`crate::Kind::value`] reads it back.
fn text(value: &Value) -> String {
    match value {
        // Sizes lose the space before their unit.
        Value::String(text) => text.replace(' ', ""),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}
