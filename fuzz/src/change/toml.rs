//! A tree as TOML: scalars and inline tables above, a section for each table of the outermost one.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// What is null is left out, which TOML has no word for.
pub(super) fn write(tree: &Value) -> String {
    let Value::Object(table) = tree else { return inline(tree) };
    let (mut text, mut sections) = (String::new(), String::new());
    for (key, value) in table {
        let part = match value {
            Value::Object(section) => {
                let _ = writeln!(sections, "[{}]\n{}", quoted(key), lines(section));
                continue;
            }
            Value::Null => continue,
            value => inline(value),
        };
        let _ = writeln!(text, "{} = {part}", quoted(key));
    }
    text + &sections
}

fn lines(table: &Map<String, Value>) -> String {
    let pairs = table.iter().filter(|(_, value)| !value.is_null());
    pairs.map(|(key, value)| format!("{} = {}\n", quoted(key), inline(value))).collect()
}

fn inline(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let pairs = table.iter().filter(|(_, value)| !value.is_null());
            let pairs: Vec<String> = pairs.map(|(key, value)| format!("{} = {}", quoted(key), inline(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().filter(|item| !item.is_null()).map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        // JSON's escapes are TOML's too, but for a few that are errors there: good enough, they are hostile anyway.
        other => other.to_string(),
    }
}

fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { key.to_owned() } else { Value::from(key).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let tree =
            json!({"schema": 1, "model": {"hf": {"a b": [1, 2.5, "x\"y"], "c": {"d": true}}}, "input": {"n": 3}});
        assert_eq!(::toml::from_str::<Value>(&write(&tree)).unwrap(), tree);
    }
}
