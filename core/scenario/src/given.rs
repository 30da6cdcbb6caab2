//! What was given in one table of a scenario, with the path of every key, so that each error can name it.

use plimsoll_ground::{Error, Result, nearest, quoted};
use serde_json::{Map, Number, Value};

use super::lever::{Kind, SECTIONS};

/// A table that was given, or its absence: then every key takes its default.
#[derive(Debug)]
pub struct Given<'a> {
    path: String,
    map: Option<&'a Map<String, Value>>,
}

impl<'a> Given<'a> {
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

    /// The names of its keys.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.map.into_iter().flat_map(|map| map.keys().map(String::as_str))
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
        let elsewhere = SECTIONS.iter().find(|section| section.names().contains(&unknown.as_str()));
        let hint = match (elsewhere, nearest(unknown, known)) {
            (Some(section), _) if section.path != self.path => format!("it belongs in [{}]", section.path),
            (_, Some(near)) => format!("did you mean {near:?}?"),
            (_, None) => format!("known here: {}", known.join(", ")),
        };
        Err(Error::new(self.at(&plain(unknown)), "unknown key", hint))
    }
}

/// A key as it stands in a path: quoted when it is long or odd.
fn plain(key: &str) -> String {
    let letters = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.len() <= 48 && key.chars().all(letters) { key.to_owned() } else { quoted(key) }
}

/// A whole number from 1 to `most`, or why not.
pub fn count(value: &Value, at: &str, most: u64) -> Result<u64> {
    number(value, at, Kind::Count { most })
}

/// A whole number that such a lever holds, or why not.
pub fn number(value: &Value, at: &str, kind: Kind) -> Result<u64> {
    let problem = match value {
        Value::Number(number) => match whole(number) {
            Whole::Number(n) => match kind.refuses(n) {
                None => return Ok(n),
                Some(problem) => problem,
            },
            Whole::Negative => format!("{number} is negative"),
            Whole::TooLarge => format!("{number} is too large"),
            Whole::Fraction => format!("{number} is not a whole number"),
        },
        other => format!("expected a whole number, found {}", found(other)),
    };
    Err(Error::new(at, problem, format!("give {}", kind.in_words())))
}

/// A probability, 0 <= p < 1, or why not.
pub fn fraction(value: &Value, at: &str) -> Result<f64> {
    let hint = "give a number from 0 up to but not including 1";
    match value.as_f64() {
        // Adding zero turns -0.0 into 0.0, which prints the same everywhere.
        Some(p) if (0.0..1.0).contains(&p) => Ok(p + 0.0),
        Some(p) => Err(Error::new(at, format!("{p} is not a probability"), hint)),
        None => Err(Error::new(at, format!("expected a number, found {}", found(value)), hint)),
    }
}

/// true or false, or why not.
pub fn flag(value: &Value, at: &str) -> Result<bool> {
    value.as_bool().ok_or_else(|| {
        let problem = format!("expected true or false, found {}", found(value));
        Error::new(at, problem, "write true or false, without quotes")
    })
}

/// A text, or why not.
pub fn text<'v>(value: &'v Value, at: &str, example: &str) -> Result<&'v str> {
    value.as_str().ok_or_else(|| {
        let problem = format!("expected text, found {}", found(value));
        Error::new(at, problem, format!("write it in quotes, as {example:?}"))
    })
}

/// What one of these words stands for, or why not.
pub fn one_of<T: Copy>(value: &Value, at: &str, words: &[(&'static str, T)]) -> Result<T> {
    let keys: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let text = text(value, at, keys.first().copied().unwrap_or_default())?;
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let did_you_mean = nearest(text, &keys).map(|near| format!("did you mean {near:?}; ")).unwrap_or_default();
    let problem = format!("{} is not one of its values", quoted(text));
    Err(Error::new(at, problem, format!("{did_you_mean}use one of {}", keys.join(", "))))
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
