//! What a text says, whatever it is written in: groups of keys with their values, keys of tables within tables joined by dots.

mod python;
mod shell;
mod tokens;
mod yaml;

use plimsoll_ground::{Error, Result};
use serde_json::{Map, Value};

/// The longest text that is read, in bytes: the longest configurations in the wild are a few kilobytes, notebooks some hundred.
pub const MOST_BYTES: usize = 1 << 20;

/// The most keys of one text.
pub const MOST_KEYS: usize = 20_000;

/// The deepest table.
const MOST_DEPTH: usize = 32;

/// A value with where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// `trainer.precision`.
    pub key: String,
    /// As it was written.
    pub value: Value,
}

/// What stands together: one file, one call, one command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// What was called, as `TrainingArguments`; empty for a file.
    pub called: String,
    /// Whether it is a command line.
    pub command: bool,
    /// What was given without a name, in order.
    pub given: Vec<Value>,
    /// The rest, in order.
    pub said: Vec<Said>,
    /// A file as it is read: Hugging Face's config.json is taken whole.
    pub whole: Option<Value>,
}

impl Group {
    fn of(value: Value) -> Result<Self> {
        let mut group = Self { whole: Some(value.clone()), ..Self::default() };
        if let Value::Object(map) = value {
            flatten("", map, 0, &mut group.said)?;
        }
        Ok(group)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.said.iter().find(|said| said.key == key).map(|said| &said.value)
    }
}

/// Reads a text; the name of its file says what it is written in, where there is one.
pub fn read(name: &str, text: &str) -> Result<Vec<Group>> {
    if text.len() > MOST_BYTES {
        let problem = format!("it has {} bytes, more than the {MOST_BYTES} that are read", text.len());
        return Err(Error::new("from", problem, "give the configuration alone"));
    }
    let text = text.trim_start_matches('\u{feff}');
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    match ending.as_str() {
        "json" => Ok(vec![Group::of(json(text)?)?]),
        "yaml" | "yml" => Ok(vec![Group::of(yaml::read(text)?)?]),
        "toml" => Ok(vec![Group::of(toml(text)?)?]),
        "py" => python::read(text),
        "ipynb" => python::read(&cells(&json(text)?)),
        "sh" | "bash" | "slurm" | "sbatch" => shell::read(text),
        _ => guess(text),
    }
}

/// Pasted text: by what it looks like.
fn guess(text: &str) -> Result<Vec<Group>> {
    let start = text.trim_start();
    if start.starts_with('{') {
        let value = json(text)?;
        if value.get("nbformat").is_some() {
            return python::read(&cells(&value));
        }
        return Ok(vec![Group::of(value)?]);
    }
    // A call of something, a table's header of TOML, options of a command; what is left is YAML.
    if let Ok(groups) = python::read(text)
        && !groups.is_empty()
    {
        return Ok(groups);
    }
    if let Ok(groups) = shell::read(text)
        && !groups.is_empty()
    {
        return Ok(groups);
    }
    if let Ok(value) = toml(text)
        && value.as_object().is_some_and(|table| !table.is_empty())
    {
        return Ok(vec![Group::of(value)?]);
    }
    let value = yaml::read(text)?;
    if !value.is_object() {
        let hint = "paste a configuration (YAML, JSON, TOML), Python that calls TrainingArguments or the like, or a command line";
        return Err(Error::new("from", "there are no keys in it", hint));
    }
    Ok(vec![Group::of(value)?])
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| {
        let problem = format!("it is not JSON: {error}");
        Error::new("from", problem, "mend it there, or give the file that was meant")
    })
}

fn toml(text: &str) -> Result<Value> {
    toml::from_str::<Value>(text).map_err(|error| {
        let problem = format!("it is not TOML: {}", error.message());
        Error::new("from", problem, "mend it there, or give the file that was meant")
    })
}

/// The code of a notebook, without what only a notebook understands.
fn cells(notebook: &Value) -> String {
    let mut code = String::new();
    for cell in notebook.get("cells").and_then(Value::as_array).into_iter().flatten() {
        if cell.get("cell_type").and_then(Value::as_str) != Some("code") {
            continue;
        }
        match cell.get("source") {
            Some(Value::String(text)) => code.push_str(text),
            Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).for_each(|line| code.push_str(line)),
            _ => {}
        }
        code.push('\n');
    }
    code
}

fn flatten(path: &str, map: Map<String, Value>, depth: usize, out: &mut Vec<Said>) -> Result<()> {
    if depth > MOST_DEPTH {
        return Err(Error::new("from", "its tables stand too deep in one another", "give the configuration alone"));
    }
    for (name, value) in map {
        let key = if path.is_empty() { name } else { format!("{path}.{name}") };
        match value {
            Value::Object(inner) if !inner.is_empty() => flatten(&key, inner, depth + 1, out)?,
            value => out.push(Said { key, value }),
        }
        if out.len() > MOST_KEYS {
            return Err(Error::new("from", "it has too many keys", "give the configuration alone"));
        }
    }
    Ok(())
}

/// A word as a value: numbers, truth and nothing as YAML 1.1 and Python write them, the rest as text.
fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" | "None" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Value::Bool(false),
        _ => {}
    }
    let plain = text.replace('_', "");
    // A name such as `infinity` or `nan` is a text; so is one that begins with an underscore.
    if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        if let Ok(number) = plain.parse::<i64>() {
            return number.into();
        }
        if let Some(number) = plain.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
            return Value::Number(number);
        }
    }
    Value::String(text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(name: &str, text: &str) -> Group {
        read(name, text).unwrap().remove(0)
    }

    #[test]
    fn keys_of_tables_are_joined() {
        for (name, text) in [
            ("a.yaml", "trainer:\n  precision: bf16-mixed\n  devices: 2\n"),
            ("a.json", r#"{"trainer": {"precision": "bf16-mixed", "devices": 2}}"#),
            ("a.toml", "[trainer]\nprecision = \"bf16-mixed\"\ndevices = 2\n"),
            ("", "trainer:\n  precision: bf16-mixed\n  devices: 2\n"),
            ("", "[trainer]\nprecision = \"bf16-mixed\"\ndevices = 2\n"),
        ] {
            let group = one(name, text);
            assert_eq!(group.get("trainer.precision"), Some(&json!("bf16-mixed")), "{text}");
            assert_eq!(group.get("trainer.devices"), Some(&json!(2)), "{text}");
        }
    }

    #[test]
    fn a_notebook_is_its_code() {
        let notebook = json!({ "nbformat": 4, "cells": [
            { "cell_type": "markdown", "source": ["f(x=1)"] },
            { "cell_type": "code", "source": ["%pip install x\n", "model = f(\n", "  r = 16,\n", ")\n"] },
        ] });
        for name in ["a.ipynb", ""] {
            let groups = read(name, &notebook.to_string()).unwrap();
            let call = groups.iter().find(|group| group.called == "f");
            assert_eq!(call.and_then(|group| group.get("r")), Some(&json!(16)));
        }
    }

    #[test]
    fn what_says_nothing_is_refused() {
        for text in ["", "hello", "- 1\n- 2\n", "{", "{]", "\u{0}", "a: [", "a: &x [*x]"] {
            assert!(read("", text).is_err(), "{text:?}");
        }
        assert!(read("", &"{".repeat(100_000)).is_err());
        assert!(read("a.yaml", &"[".repeat(100_000)).is_err());
        assert!(read("a.yaml", &"a: {".repeat(100_000)).is_err());
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for n in 1..12 {
            let inner = vec![format!("*a{}", n - 1); 9].join(",");
            text.push_str(&format!("a{n}: &a{n} [{inner}]\n"));
        }
        assert!(read("a.yaml", &text).is_err());
    }
}
