//! A walk over one table of a scenario that knows the path of every key, so that each error can name it.

use plimsoll_ground::{Bytes, Error, Result};
use plimsoll_ground::{nearest, quoted};
use serde_json::{Map, Number, Value};

use super::recipe::Vocabulary;
use super::{keys, memory};

/// A table of the scenario, or its absence: then every key takes its default.
#[derive(Debug)]
pub struct Table<'a> {
    path: String,
    map: Option<&'a Map<String, Value>>,
}

impl<'a> Table<'a> {
    /// The whole scenario.
    pub fn root(value: &'a Value) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self { path: String::new(), map: Some(map) }),
            other => Err(Error::new(
                "scenario",
                format!("expected a table, found {}", found(other)),
                "write it as the documentation shows, with [model], [input], [training] and [device]",
            )),
        }
    }

    /// The table at `name`; when it is missing, one without keys.
    pub fn table(&self, name: &str) -> Result<Self> {
        let path = self.at(name);
        match self.get(name) {
            None => Ok(Self { path, map: None }),
            Some(Value::Object(map)) => Ok(Self { path, map: Some(map) }),
            Some(other) => {
                let hint = format!("give its keys one by one, in TOML below a line [{path}]");
                Err(Error::new(path, format!("expected a table, found {}", found(other)), hint))
            }
        }
    }

    /// The path of one of its keys.
    pub fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The value at `name`, as it stands.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.map?.get(name)
    }

    /// The value of an optional key, where JSON's null says the same as leaving it out.
    pub fn optional(&self, name: &str) -> Option<&'a Value> {
        self.get(name).filter(|v| !v.is_null())
    }

    /// Refuses keys other than `known`.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        let Some(unknown) = self.map.and_then(|m| m.keys().find(|k| !known.contains(&k.as_str()))) else {
            return Ok(());
        };
        let elsewhere = keys::sections_with(unknown);
        let hint = match (elsewhere.first(), nearest(unknown, known)) {
            (Some(section), _) if *section != self.path => format!("it belongs in [{section}]"),
            (_, Some(near)) => format!("did you mean {near:?}?"),
            (_, None) => format!("known here: {}", known.join(", ")),
        };
        Err(Error::new(self.at(&plain(unknown)), "unknown key", hint))
    }

    /// A whole number from 1 to `most`.
    pub fn count(&self, name: &str, most: u64) -> Result<Option<u64>> {
        self.get(name).map(|value| count(value, self.at(name), most)).transpose()
    }

    /// A probability, 0 <= p < 1.
    pub fn fraction(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let hint = "give a number from 0 up to but not including 1";
        match value.as_f64() {
            // Adding zero turns -0.0 into 0.0, which prints the same everywhere.
            Some(p) if (0.0..1.0).contains(&p) => Ok(Some(p + 0.0)),
            Some(p) => Err(Error::new(self.at(name), format!("{p} is not a probability"), hint)),
            None => Err(Error::new(self.at(name), format!("expected a number, found {}", found(value)), hint)),
        }
    }

    /// true or false.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(Error::new(
                self.at(name),
                format!("expected true or false, found {}", found(other)),
                "write true or false, without quotes",
            )),
        }
    }

    /// A text.
    pub fn text(&self, name: &str, example: &str) -> Result<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(Error::new(
                self.at(name),
                format!("expected text, found {}", found(other)),
                format!("write it in quotes, as {example:?}"),
            )),
        }
    }

    /// A word of a closed vocabulary.
    pub fn word<T: Vocabulary>(&self, name: &str) -> Result<Option<T>> {
        let words: Vec<&'static str> = T::values().iter().map(|v| v.word()).collect();
        let Some(word) = self.one_of(name, &words)? else { return Ok(None) };
        Ok(T::values().iter().copied().find(|v| v.word() == word))
    }

    /// One of these words.
    pub fn one_of(&self, name: &str, words: &[&'static str]) -> Result<Option<&'static str>> {
        let Some(text) = self.text(name, words.first().copied().unwrap_or_default())? else { return Ok(None) };
        if let Some(word) = words.iter().find(|word| **word == text) {
            return Ok(Some(word));
        }
        let did_you_mean = nearest(text, words).map(|near| format!("did you mean {near:?}; ")).unwrap_or_default();
        Err(Error::new(
            self.at(name),
            format!("{} is not one of its values", quoted(text)),
            format!("{did_you_mean}use one of {}", words.join(", ")),
        ))
    }

    /// An amount of memory: text with a unit, or a whole number of bytes.
    pub fn memory(&self, name: &str, least: Bytes, most: Bytes) -> Result<Option<Bytes>> {
        let hint = "give a size with its unit, as \"11.6 GiB\", \"11 GB\" or \"12000 MiB\", or a whole number of bytes";
        let refuse = |problem: String| Error::new(self.at(name), problem, hint);
        let bytes = match self.optional(name) {
            None => return Ok(None),
            Some(Value::String(text)) => memory::parse(text).map_err(refuse)?,
            Some(Value::Number(number)) => number
                .as_u64()
                .map(Bytes::new)
                .ok_or_else(|| refuse(format!("{number} is not a whole number of bytes")))?,
            Some(other) => return Err(refuse(format!("expected a size, found {}", found(other)))),
        };
        if bytes < least {
            return Err(refuse(format!("{bytes} is too little (a forgotten unit?)")));
        }
        if bytes > most {
            return Err(refuse(format!("{bytes} is more than the {most} any device has")));
        }
        Ok(Some(bytes))
    }
}

/// A key as it stands in a path: quoted when it is long or odd.
fn plain(key: &str) -> String {
    let letters = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.len() <= 48 && key.chars().all(letters) { key.to_owned() } else { quoted(key) }
}

/// A whole number from 1 to `most`, or why not.
fn count(value: &Value, key: String, most: u64) -> Result<u64> {
    let problem = match value {
        Value::Number(number) => match whole(number) {
            Whole::Number(0) => "0 is too small".to_owned(),
            Whole::Number(n) if n <= most => return Ok(n),
            Whole::Number(n) => format!("{n} is too large"),
            Whole::Negative => format!("{number} is negative"),
            Whole::TooLarge => format!("{number} is too large"),
            Whole::Fraction => format!("{number} is not a whole number"),
        },
        other => format!("expected a whole number, found {}", found(other)),
    };
    Err(Error::new(key, problem, format!("give a whole number from 1 to {most}")))
}

enum Whole {
    Number(u64),
    Negative,
    TooLarge,
    Fraction,
}

fn whole(number: &Number) -> Whole {
    if let Some(n) = number.as_u64() {
        return Whole::Number(n);
    }
    match number.as_f64() {
        Some(n) if n < 0.0 => Whole::Negative,
        // JSON numbers past 2^64 arrive as floats.
        Some(n) if n >= 18_446_744_073_709_551_616.0 => Whole::TooLarge,
        _ => Whole::Fraction,
    }
}

/// A value in words, for "expected ..., found ...".
pub fn found(value: &Value) -> String {
    match value {
        Value::Null => "nothing (null)".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text {}", quoted(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a table".to_owned(),
    }
}
