//! From the text of a file to the table it holds, not yet read as a scenario.

use plimsoll_ground::{Error, Result};
use serde_json::Value;

use super::limits;

/// Reads JSON.
///
/// # Errors
/// Too long, empty, not JSON, nested too deep.
pub fn json(text: &str) -> Result<Value> {
    let text = checked(text)?;
    serde_json::from_str(text).map_err(|error| {
        let hint = match error.classify() {
            serde_json::error::Category::Eof => "the file seems to be cut off; save it again",
            _ => "correct the JSON at that place",
        };
        Error::new("scenario", format!("not valid JSON: {error}"), hint)
    })
}

/// Reads TOML.
///
/// # Errors
/// Too long, empty, not TOML, nested too deep, or a value JSON does not have (a date, an infinity).
#[cfg(feature = "toml")]
pub fn toml(text: &str) -> Result<Value> {
    let text = checked(text)?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or_else(String::new, |span| {
            let before = text.get(..span.start).unwrap_or(text);
            format!(" in line {}", before.matches('\n').count() + 1)
        });
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        Error::new("scenario", format!("not valid TOML{line}: {message}"), "correct the TOML at that place")
    })?;
    from_toml(toml::Value::Table(table), "")
}

/// TOML's values as JSON's; `path` is for the message.
#[cfg(feature = "toml")]
fn from_toml(value: toml::Value, path: &str) -> Result<Value> {
    Ok(match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(n) => n.into(),
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Float(n) => match serde_json::Number::from_f64(n) {
            Some(number) => Value::Number(number),
            None => return Err(Error::new(path, format!("{n} is not a number to count with"), "give a finite number")),
        },
        toml::Value::Datetime(date) => {
            return Err(Error::new(path, format!("{date} is a date"), "no key of a scenario holds a date"));
        }
        toml::Value::Array(items) => {
            items.into_iter().map(|item| from_toml(item, path)).collect::<Result<Vec<Value>>>()?.into()
        }
        toml::Value::Table(table) => {
            let mut map = serde_json::Map::new();
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                map.insert(key, from_toml(value, &path)?);
            }
            Value::Object(map)
        }
    })
}

/// Refuses what is too long or empty; drops the byte order mark some editors write.
fn checked(text: &str) -> Result<&str> {
    if text.len() > limits::TEXT {
        return Err(too_long());
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(Error::new(
            "scenario",
            "the file is empty",
            "write at least which model: {\"model\": {\"catalog\": \"llama-3.2-1b\"}}",
        ));
    }
    Ok(text)
}

/// The error for text longer than [`limits::TEXT`]; for readers that stop before they have all of it.
pub fn too_long() -> Error {
    Error::new(
        "scenario",
        "the text is longer than 1 MiB",
        "a scenario is a few hundred bytes; check that this is the right file",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_scenario() {
        assert_eq!(json("").unwrap_err().problem, "the file is empty");
        assert_eq!(json(" \n\t").unwrap_err().problem, "the file is empty");
        assert!(json(&" ".repeat(10 << 20)).unwrap_err().problem.contains("longer than 1 MiB"));
        let cut = json("{\"model\": {\"catalog\": \"llama").unwrap_err();
        assert!(cut.problem.contains("line 1 column"), "{cut}");
        assert!(cut.hint.contains("cut off"), "{cut}");
        assert!(json(&"[".repeat(1 << 19)).unwrap_err().problem.contains("recursion limit"));
        assert!(json("{\"a\": NaN}").is_err());
        assert!(json("{\"a\": 1e999}").is_err());
    }

    #[test]
    fn a_byte_order_mark_is_no_error() {
        assert!(json("\u{feff}{}").is_ok());
    }

    #[cfg(feature = "toml")]
    #[test]
    fn toml_that_is_no_scenario() {
        assert_eq!(toml("").unwrap_err().problem, "the file is empty");
        let wrong = toml("[model]\ncatalog = \n").unwrap_err();
        assert!(wrong.problem.starts_with("not valid TOML in line 2"), "{wrong}");
        assert_eq!(toml("[input]\nbatch = nan").unwrap_err().key, "input.batch");
        assert_eq!(toml("[input]\nbatch = -inf").unwrap_err().key, "input.batch");
        assert_eq!(toml("[input]\nbatch = 2026-11-05").unwrap_err().key, "input.batch");
        assert!(toml("[input]\nbatch = 99999999999999999999999").is_err());
        assert!(toml(&format!("a = {}", "[".repeat(1 << 19))).is_err());
        assert!(toml(&format!("a = {}1{}", "[".repeat(1 << 10), "]".repeat(1 << 10))).is_err());
        assert!(toml(&format!("[{}a]", "a.".repeat(1 << 18))).is_err());
    }
}
