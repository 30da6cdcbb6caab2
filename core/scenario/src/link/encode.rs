//! From a scenario to its link.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use plimsoll_catalog::families;
use serde_json::Value;

use super::fragment;
use crate::fill::Said;
use crate::model::{Model, default_task};
use crate::{Lever, ModelSource, SECTIONS, Scenario, at, linked};

/// What is escaped in a query: all but letters, digits and what reads well and means nothing there.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b',');

pub(super) fn encode(scenario: &Scenario) -> String {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let mut tail = String::new();
    match &scenario.model.source {
        ModelSource::Catalog(id) => pairs.push(("model", id.clone())),
        ModelSource::Family { name, keys } => {
            pairs.push(("family", name.clone()));
            for key in families::own(name).map_or(&[][..], |f| f.keys()) {
                if let Some(value) = keys.get(key.name).filter(|v| **v != key.kind.default()) {
                    pairs.push((key.name, text(value)));
                }
            }
        }
        ModelSource::Hull(hull) => {
            pairs.push(("hull", hull.hash().to_owned()));
            let axes: Vec<String> = hull.axes().iter().map(|(name, value)| format!("{name}:{}", text(value))).collect();
            if !axes.is_empty() {
                pairs.push(("axes", axes.join(",")));
            }
            if let Some(content) = hull.carried() {
                tail = format!("#h={content}");
            }
        }
        ModelSource::HuggingFace(config) => {
            let name = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
            pairs.push(("hf", name.to_owned()));
            tail = format!("#m={}", fragment::encode(config));
        }
    }
    let said = said(scenario);
    for lever in linked().filter(|lever| said.contains(lever)) {
        if let Some(value) = lever.get(scenario) {
            pairs.push((lever.row.link, text(&value)));
        }
    }
    let pairs: Vec<String> =
        pairs.iter().map(|(name, text)| format!("{name}={}", utf8_percent_encode(text, ESCAPED))).collect();
    format!("?{}{tail}", pairs.join("&"))
}

/// The fewest levers from which reading makes the same scenario again: as long as one comes back otherwise, the first such is
/// said too. Defaults follow what is said before them, so the order is that in which they are filled in.
pub(super) fn said(scenario: &Scenario) -> Vec<&'static Lever> {
    let order: Vec<&'static Lever> = SECTIONS.iter().rev().flat_map(|section| section.levers()).collect();
    let source = &scenario.model.source;
    let mut said: Vec<&'static Lever> = Vec::new();
    loop {
        let task = if said.iter().any(|lever| lever.path == at::model::task) {
            scenario.model.task
        } else {
            default_task(source.family())
        };
        let mut read = Scenario::constant(Model { source: source.clone(), task });
        let mut known = Said::default();
        for lever in &said {
            if let Some(value) = lever.get(scenario) {
                // It was read once already.
                let _ = known.say(&mut read, lever, &value);
            }
        }
        let read = read.filled(&known);
        match order.iter().find(|lever| !said.contains(lever) && lever.get(&read) != lever.get(scenario)) {
            Some(lever) => said.push(lever),
            None => return said,
        }
    }
}

/// A value as [`crate::Kind::value`] reads it back.
pub(super) fn text(value: &Value) -> String {
    match value {
        // Sizes lose the space before their unit.
        Value::String(text) => text.replace(' ', ""),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}
