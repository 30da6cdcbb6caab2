//! Reading rows of a data file so that every mistake is reported with its place.

use toml::{Table, Value};

/// One table of a data file, and what to call it in a message.
pub struct Row<'a> {
    place: String,
    table: &'a Table,
    /// Shared values of the series the row stands in.
    shared: Option<&'a Table>,
}

impl<'a> Row<'a> {
    pub fn new(file: &str, what: &str, table: &'a Table, shared: Option<&'a Table>) -> Self {
        let place = match table.get("id").and_then(Value::as_str) {
            Some(id) => format!("{file}: {what} \"{id}\""),
            None => format!("{file}: a {what} without an id"),
        };
        Self { place, table, shared }
    }

    pub fn problem(&self, text: &str) -> String {
        format!("{}: {text}", self.place)
    }

    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.table.get(key).or_else(|| self.shared.and_then(|s| s.get(key)))
    }

    /// A text that must be there and must not be blank.
    pub fn text(&self, key: &str) -> Result<&'a str, String> {
        match self.get(key) {
            None => Err(self.problem(&format!("{key} is missing"))),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(text),
            Some(_) => Err(self.problem(&format!("{key} must be a text that says something"))),
        }
    }

    /// A positive whole number, if there is one.
    pub fn whole(&self, key: &str) -> Result<Option<u64>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Integer(n)) if *n > 0 => Ok(Some(n.unsigned_abs())),
            Some(_) => Err(self.problem(&format!("{key} must be a positive whole number"))),
        }
    }

    /// A positive number, if there is one.
    pub fn number(&self, key: &str) -> Result<Option<f64>, String> {
        let n = match self.get(key) {
            None => return Ok(None),
            Some(Value::Integer(n)) => *n as f64,
            Some(Value::Float(n)) => *n,
            Some(_) => f64::NAN,
        };
        if n > 0.0 && n.is_finite() {
            Ok(Some(n))
        } else {
            Err(self.problem(&format!("{key} must be a positive number")))
        }
    }

    /// A list of positive whole numbers, if there is one.
    pub fn wholes(&self, key: &str) -> Result<Option<Vec<u64>>, String> {
        let bad = || self.problem(&format!("{key} must be a list of positive whole numbers"));
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(list)) if !list.is_empty() => list
                .iter()
                .map(|v| v.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|&n| n > 0).ok_or_else(bad))
                .collect::<Result<_, _>>()
                .map(Some),
            Some(_) => Err(bad()),
        }
    }

    /// Refuses keys that nothing reads: most are misspelt.
    pub fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.table.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => {
                Err(self.problem(&format!("nothing reads the key {key}; it may be one of {}", known.join(", "))))
            }
            None => Ok(()),
        }
    }
}

/// Ids are what people type and what stands in links for ever: small letters, digits, inner hyphens and full stops.
pub fn check_id(id: &str) -> Result<(), String> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if id.chars().all(fine) && edge(id.chars().next()) && edge(id.chars().last()) {
        Ok(())
    } else {
        Err(format!("\"{id}\" is not an id: use small letters, digits, and hyphens or full stops between them"))
    }
}

/// The array of tables under `key`.
pub fn tables<'a>(file: &str, document: &'a Table, key: &str) -> Result<Vec<&'a Table>, String> {
    let Some(Value::Array(list)) = document.get(key) else {
        return Err(format!("{file}: there is no {key}"));
    };
    list.iter().map(|v| v.as_table().ok_or_else(|| format!("{file}: a {key} is not a table"))).collect()
}
