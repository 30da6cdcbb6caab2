//! The way out: a [`Scenario`] as JSON or TOML with every default filled in.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::lever::{Entry, SECTIONS, Table, Written};
use super::model::MODEL;
use super::{SCHEMA, Scenario, limits};

impl Scenario {
    /// The canonical JSON: `schema` first, every default filled in, keys in the order of the table. A lever that has no value
    /// is left out, and so is one that is written only where it says something and does not.
    pub fn to_value(&self) -> Value {
        let mut sections = Map::new();
        sections.insert("schema".to_owned(), json!(SCHEMA));
        for section in SECTIONS {
            let table = if section.path == MODEL.path { self.model.table() } else { self.table(section) };
            // A section that came later stands where it says something.
            if !table.is_empty() {
                sections.insert(section.path.to_owned(), Value::Object(table));
            }
        }
        Value::Object(sections)
    }

    /// One table of it.
    fn table(&self, table: &'static Table) -> Map<String, Value> {
        let mut written = Map::new();
        for entry in table.entries {
            let value = match entry {
                // A table that is always there says nothing while all in it is left as it is.
                Entry::Table(within) if (within.is_open)(self) => {
                    Some(self.table(within)).filter(|table| !table.is_empty()).map(Value::Object)
                }
                Entry::Table(_) => None,
                Entry::Lever(lever) => lever.get(self).filter(|value| {
                    lever.row.written == Written::Always || lever.default(self).as_ref() != Some(value)
                }),
            };
            if let Some(value) = value {
                written.insert(entry.name().to_owned(), value);
            }
        }
        written
    }

    /// The same as TOML. A Hugging Face config stands in it as the JSON it is, because TOML has no null.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        let Value::Object(sections) = self.to_value() else { return out };
        for (name, section) in &sections {
            match section {
                Value::Object(table) => {
                    // Writing to a String cannot fail.
                    let _ = writeln!(out, "\n[{name}]");
                    for (key, value) in table {
                        match (key.as_str(), value) {
                            ("hf", Value::Object(_)) => {
                                let _ = writeln!(out, "hf = '''\n{}\n'''", literal_json(value));
                            }
                            _ => {
                                let _ = writeln!(out, "{key} = {}", toml_value(value));
                            }
                        }
                    }
                }
                value => {
                    let _ = writeln!(out, "{name} = {}", toml_value(value));
                }
            }
        }
        out
    }
}

/// A value on one line of TOML.
fn toml_value(value: &Value) -> String {
    match value {
        // No key of ours holds null.
        Value::Null => "\"\"".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => toml_string(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml_value).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(table) => {
            // A table within a section, whose keys are bare.
            let items: Vec<String> =
                table.iter().map(|(key, value)| format!("{key} = {}", toml_value(value))).collect();
            format!("{{ {} }}", items.join(", "))
        }
    }
}

/// A basic string: JSON's escapes are TOML's, but for DEL, which TOML wants escaped too.
fn toml_string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// JSON that can stand between `'''`: there, TOML allows neither `'''` nor DEL.
fn literal_json(value: &Value) -> String {
    /// Indented, lists within lists are a hundred times as long as they are, and more than is read as a scenario.
    const INDENTED: usize = limits::TEXT / 8;
    let indented = format!("{value:#}");
    let text = if indented.len() > INDENTED { value.to_string() } else { indented };
    text.replace('\'', "\\u0027").replace('\u{7f}', "\\u007f")
}
