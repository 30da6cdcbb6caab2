//! From text to a record: the shape only; [`Measurement::validate`] says whether what it tells can be true.

use std::fmt;

use plimsoll_ground::{Error, Result};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::Measurement;

/// Longest text read as a record, in bytes: four times a long run's, with thousands of samples and phases.
pub const TEXT: usize = 4 << 20;

/// Deepest nesting of a record: a pasted config within the scenario within the estimate is the deepest part.
const DEPTH: usize = 32;

impl Measurement {
    /// Reads a record from JSON text: every key known, none given twice, every value of its type.
    ///
    /// ```
    /// use plimsoll_record::{EXAMPLE, Measurement};
    ///
    /// let record = Measurement::from_json(EXAMPLE)?;
    /// assert_eq!(record.validate(), []);
    /// let text = EXAMPLE.replace("\"taken\": \"2026-11-20\"", "\"taken\": 20");
    /// assert_eq!(Measurement::from_json(&text).unwrap_err().key, "taken");
    /// # Ok::<(), plimsoll_ground::Error>(())
    /// ```
    ///
    /// # Errors
    /// Text that is too long, no JSON, nested too deep, or of another shape; the key is the path of the value.
    pub fn from_json(text: &str) -> Result<Self> {
        if text.len() > TEXT {
            let problem = format!("it is {} bytes long, more than {TEXT}", text.len());
            return Err(Error::new("record", problem, "give the record plimsoll probe wrote, and nothing else"));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = serde_json::Deserializer::from_str(text);
        let value = Unique { path: String::new(), depth: 0 }.deserialize(&mut reader).and_then(|value| {
            reader.end()?;
            Ok(value)
        });
        Self::from_value(value.map_err(|error| broken(&error))?)
    }

    /// Reads a record from a JSON value.
    ///
    /// # Errors
    /// As [`Measurement::from_json`]'s, but for the text itself.
    pub fn from_value(value: Value) -> Result<Self> {
        // A later format has other keys: say that, not that they are unknown.
        if let Some(later) = value.get("schema").and_then(Value::as_u64).filter(|n| *n > u64::from(super::SCHEMA)) {
            return Err(Error::new(
                "schema",
                format!("made by a newer Plimsoll (record schema {later}; this one reads {})", super::SCHEMA),
                "update Plimsoll",
            ));
        }
        let hint = "give the record as plimsoll probe wrote it; docs/measurement.schema.json has its shape";
        let record: Self = serde_path_to_error::deserialize(&value).map_err(|error| {
            let path = error.path().to_string();
            let key = if path == "." || path == "?" { "record".to_owned() } else { path };
            Error::new(key, error.into_inner().to_string(), hint)
        })?;
        // serde takes a list for a table, its items in order; a record does not.
        match listed(&value, &serde_json::to_value(&record).unwrap_or_default(), "") {
            None => Ok(record),
            Some(path) => {
                let key = if path.is_empty() { "record".to_owned() } else { path };
                Err(Error::new(key, "expected a table, found a list", hint))
            }
        }
    }
}

/// Where `given` has a list and `read` a table.
fn listed(given: &Value, read: &Value, path: &str) -> Option<String> {
    match (given, read) {
        (Value::Array(_), Value::Object(_)) => Some(path.to_owned()),
        (Value::Object(given), Value::Object(read)) => read.iter().find_map(|(key, read)| {
            let dot = if path.is_empty() { "" } else { "." };
            listed(given.get(key)?, read, &format!("{path}{dot}{key}"))
        }),
        (Value::Array(given), Value::Array(read)) => {
            let mut pairs = given.iter().zip(read).enumerate();
            pairs.find_map(|(index, (given, read))| listed(given, read, &format!("{path}[{index}]")))
        }
        _ => None,
    }
}

/// The separator between the path and the problem of an error made by [`Unique`].
const AT: char = '\u{1}';

fn broken(error: &serde_json::Error) -> Error {
    let text = error.to_string();
    if let Some((path, problem)) = text.split_once(AT) {
        // serde_json puts the place behind a message of ours: " at line 3 column 4".
        return Error::new(path, problem, "keep one of them, or give the record as plimsoll probe wrote it");
    }
    let hint = match error.classify() {
        serde_json::error::Category::Eof => "the file seems to be cut off; take it anew",
        _ => "give the record as plimsoll probe wrote it",
    };
    Error::new("record", format!("not valid JSON: {text}"), hint)
}

/// Any JSON value, but no key twice in a table and no nesting beyond [`DEPTH`].
struct Unique {
    path: String,
    depth: usize,
}

impl Unique {
    fn below(&self, step: &str) -> Self {
        let dot = if self.path.is_empty() || step.starts_with('[') { "" } else { "." };
        Self { path: format!("{}{dot}{step}", self.path), depth: self.depth + 1 }
    }

    fn fault(&self, problem: &str) -> String {
        let path = if self.path.is_empty() { "record" } else { &self.path };
        format!("{path}{AT}{problem}")
    }
}

impl<'de> DeserializeSeed<'de> for Unique {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Value, D::Error> {
        if self.depth > DEPTH {
            return Err(D::Error::custom(self.fault("it is nested too deep")));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self.below(&format!("[{}]", items.len())))? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> std::result::Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = table.next_key::<String>()? {
            let short: String = key.chars().filter(|c| !c.is_control()).take(48).collect();
            let below = self.below(&short);
            if map.contains_key(&key) {
                return Err(A::Error::custom(below.fault("it is given twice")));
            }
            let value = table.next_value_seed(below)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
