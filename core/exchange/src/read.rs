//! From texts to the keys of a scenario.

use plimsoll_ground::{Error, Result, shown};
use plimsoll_scenario::Scenario;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::dialect::{self, DIALECTS, Dialect, LAUNCHER};
use crate::draft::Draft;
use crate::rule::{self, Heard, Rule};
use crate::settle::settle;
use crate::syntax::{self, Group};

/// A text and what it was called.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The file's name; empty for what was pasted.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// What became of the texts.
#[derive(Clone, Debug, Serialize)]
pub struct Imported {
    /// A scenario's table with the keys that were said; to be laid over another, or read as it is.
    pub scenario: Map<String, Value>,
    /// What was found, part by part.
    pub parts: Vec<Part>,
    /// What is to be said of how it was understood.
    pub remarks: Vec<String>,
}

/// One file of a tool, or one call.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The file's name; empty for what was pasted.
    pub file: String,
    /// What it was taken for.
    pub tool: &'static str,
    /// Its keys, in order.
    pub keys: Vec<Key>,
}

/// One key, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Key {
    /// As it is written there.
    pub key: String,
    /// Its value, cut where it is long.
    pub value: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Why, where there is more to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What came of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is part of the scenario.
    Taken,
    /// It takes no memory of the card.
    NoMemory,
    /// It moves bytes and is not estimated.
    NotEstimated,
    /// Its value makes no sense.
    Wrong,
    /// No row has it.
    Unknown,
}

impl Imported {
    /// The scenario that is meant, where another stood: whole where the files name a model, with the card, the versions and the
    /// allocator of the other; else the other with what they say laid over it.
    ///
    /// # Errors
    /// As [`Scenario::from_value`]: what is not estimated yet is refused by name.
    pub fn over(&self, other: &Scenario) -> Result<Scenario> {
        let Value::Object(mut table) = other.to_value() else { return Scenario::from_value(&Value::Null) };
        if self.scenario.contains_key("model") {
            table.retain(|section, _| ["device", "software", "allocator"].contains(&section.as_str()));
        }
        merge(&mut table, &self.scenario);
        Scenario::from_value(&Value::Object(table))
    }
}

/// Lays one scenario's table over another, table by table; which model it is, is said as a whole.
pub fn merge(under: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Object(inner)), Value::Object(more)) if key != "model" => merge(inner, more),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The longest value that is shown, in characters.
const SHOWN: usize = 60;

/// Reads configurations of other tools; `gpus` is how many cards there are, where that is known from elsewhere.
///
/// # Errors
/// A text that cannot be read, or is of no tool that is known: `from`, with what is known.
pub fn read(sources: &[Source], gpus: Option<u64>) -> Result<Imported> {
    read_for(sources, gpus, None)
}

/// As [`read`], where it is known from elsewhere which model is meant, as a scenario's `model` says it: what a tool does by itself may depend
/// on that.
///
/// # Errors
/// As [`read`].
pub fn read_for(sources: &[Source], gpus: Option<u64>, model: Option<&Value>) -> Result<Imported> {
    let mut found: Vec<(usize, String, Group)> = Vec::new();
    let mut draft = Draft { known: model.cloned(), ..Draft::default() };
    let mut parts = Vec::new();
    for source in sources {
        let named = |error: Error| {
            let key = if source.name.is_empty() { error.key.clone() } else { shown(&source.name).to_string() };
            Error { key, ..error }
        };
        let groups = syntax::read(&source.name, &source.text).map_err(named)?;
        let mut known = false;
        for group in groups {
            if let Some(config) = group.whole.as_ref().filter(|value| is_config(value)) {
                known = true;
                draft.config = Some(config.clone());
                parts.push(Part { file: source.name.clone(), tool: "a model's config.json", keys: Vec::new() });
            } else if let Some(place) = dialect::of(&group) {
                known = true;
                found.push((place, source.name.clone(), group));
            } else if group.whole.as_ref().is_some_and(is_scenario) {
                let hint = "give it by itself, not as another tool's";
                return Err(named(Error::new("from", "it is a scenario of Plimsoll already", hint)));
            }
        }
        if !known {
            let tools: Vec<&str> = dialect::tools().collect();
            let hint = format!("known are {}, and a model's config.json", tools.join(", "));
            return Err(named(Error::new("from", "it is of no tool that is known", hint)));
        }
    }
    // What each does by itself comes before anything that is said.
    let mut seen: Vec<usize> = found.iter().map(|(place, ..)| *place).collect();
    seen.sort_unstable();
    seen.dedup();
    for dialect in seen.iter().filter_map(|place| DIALECTS.get(*place)) {
        (dialect.defaults)(&mut draft);
    }
    for (place, file, group) in found {
        let Some(dialect) = DIALECTS.get(place) else { continue };
        let keys = part(dialect, &group, &mut draft);
        // Names that are set in Python, and calls that say nothing, are no news.
        if !keys.is_empty() || dialect.called.is_some() {
            parts.push(Part { file, tool: dialect.name, keys });
        }
    }
    let scenario = settle(&mut draft, gpus);
    Ok(Imported { scenario, parts, remarks: draft.remarks })
}

fn part(dialect: &Dialect, group: &Group, draft: &mut Draft) -> Vec<Key> {
    let mut keys = Vec::new();
    if let Some(called) = dialect.called {
        let name = Value::String(group.called.clone());
        keys.push(key("", &name, called(draft, &name)));
    }
    let mut tables: Vec<&[Rule]> = Vec::new();
    if group.command {
        tables.push(LAUNCHER);
    }
    tables.extend(dialect.keys);
    let given = group.given.first().filter(|_| rule::find(&tables, "0").is_some());
    let first = given.map(|value| ("0", value));
    let said = group.said.iter().map(|said| (said.key.as_str(), &said.value));
    let mut said: Vec<_> = first
        .into_iter()
        .chain(said)
        // Any name may be set in Python.
        .filter_map(|(name, value)| match rule::find(&tables, name) {
            None if dialect.calls == ["="] => None,
            row => Some((name, value, row)),
        })
        .zip(0..)
        .collect();
    said.sort_by_key(|((.., row), _)| row.map_or(usize::MAX, |(place, _)| place));
    let mut heard: Vec<(i32, Key)> = Vec::new();
    for ((name, value, row), place) in said {
        heard.push((
            place,
            match row {
                Some((_, does)) => key(name, value, does.to(draft, value)),
                None => Key { outcome: Outcome::Unknown, ..key(name, value, Heard::Free) },
            },
        ));
    }
    heard.sort_by_key(|(place, _)| *place);
    keys.extend(heard.into_iter().map(|(_, key)| key));
    keys
}

fn key(name: &str, value: &Value, heard: Heard) -> Key {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut shown: String = text.chars().filter(|c| !plimsoll_ground::is_hidden(*c)).take(SHOWN).collect();
    if text.chars().count() > SHOWN {
        shown.push_str("...");
    }
    let (outcome, why) = match heard {
        Heard::Taken => (Outcome::Taken, String::new()),
        Heard::Silent => (Outcome::NoMemory, "left to the default".to_owned()),
        Heard::Free => (Outcome::NoMemory, String::new()),
        Heard::Beyond(why) => (Outcome::NotEstimated, why),
        Heard::Wrong(why) => (Outcome::Wrong, why),
    };
    let name: String = name.chars().filter(|c| !plimsoll_ground::is_hidden(*c)).collect();
    Key { key: name, value: shown, outcome, why }
}

/// Whether it is a model's config.json.
fn is_config(value: &Value) -> bool {
    let sizes = ["architectures", "hidden_size", "n_embd", "d_model", "transformers_version"];
    value.get("model_type").is_some_and(Value::is_string) && sizes.iter().any(|key| value.get(key).is_some())
}

/// Whether it is a scenario.
fn is_scenario(value: &Value) -> bool {
    value
        .get("model")
        .is_some_and(|model| ["catalog", "hf", "family", "hull"].iter().any(|key| model.get(key).is_some()))
}
