//! The JSON Schema of the measurement record.

use plimsoll_core::measurement;

use crate::page::Page;

/// The page, written from the record's types.
pub fn page() -> Page {
    Page { name: "docs/measurement.schema.json", fresh: format!("{:#}\n", measurement::schema()) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What of `value` does not follow `schema`, by the keywords schemars writes for plain types.
    fn against(root: &Value, schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
        if let Some(name) = schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
            return against(root, &root["$defs"][name], value, path, wrong);
        }
        if let Some(choices) = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
            let fits = |choice: &Value| {
                let mut faults = Vec::new();
                against(root, choice, value, path, &mut faults);
                faults.is_empty()
            };
            if !choices.iter().any(fits) {
                wrong.push(format!("{path}: none of the choices"));
            }
            return;
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(n) if n.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let is = |t: &Value| t == kind || (t == "number" && kind == "integer");
        let typed = match schema.get("type") {
            None => true,
            Some(Value::Array(types)) => types.iter().any(is),
            Some(one) => is(one),
        };
        let within = |key: &str, good: fn(f64, f64) -> bool| match (schema[key].as_f64(), value.as_f64()) {
            (Some(bound), Some(n)) => good(n, bound),
            _ => true,
        };
        let word = schema.get("const").is_none_or(|c| c == value)
            && schema.get("enum").and_then(Value::as_array).is_none_or(|words| words.contains(value));
        if !typed || !word || !within("minimum", |n, b| n >= b) || !within("maximum", |n, b| n <= b) {
            wrong.push(format!("{path}: {value} does not fit {schema}"));
        }
        if let (Some(items), Value::Array(list)) = (schema.get("items"), value) {
            for (index, item) in list.iter().enumerate() {
                against(root, items, item, &format!("{path}[{index}]"), wrong);
            }
        }
        if let (Some(properties), Value::Object(map)) = (schema["properties"].as_object(), value) {
            for (name, inner) in properties {
                match map.get(name) {
                    Some(value) => against(root, inner, value, &format!("{path}.{name}"), wrong),
                    None => wrong.push(format!("{path}.{name}: the example does not show it")),
                }
            }
            let closed = schema["additionalProperties"] == json!(false);
            for name in map.keys().filter(|name| closed && !properties.contains_key(*name)) {
                wrong.push(format!("{path}.{name}: not in the schema"));
            }
        }
    }

    fn faults(record: &Value) -> Vec<String> {
        let schema = measurement::schema();
        let mut wrong = Vec::new();
        against(&schema, &schema, record, "record", &mut wrong);
        wrong
    }

    #[test]
    fn the_example_follows_the_schema_and_shows_every_key() {
        let example: Value = serde_json::from_str(measurement::EXAMPLE).unwrap();
        // The example is of one real card: only a rehearsal says that there was none, and only several have ranks.
        let missing =
            ["record.device.hollow", "record.ranks"].map(|key| format!("{key}: the example does not show it"));
        assert_eq!(faults(&example), missing);
    }

    #[test]
    fn the_schema_refuses_what_the_reader_refuses() {
        for (pointer, put) in [
            ("/device/total", json!("12 GiB")),
            ("/device/kind", json!("tpu")),
            ("/phases/3/micros", json!(-1)),
            ("/samples/0/utilization", json!(256)),
            ("/attempts", json!({})),
            ("/peak", json!({ "serial": 1 })),
        ] {
            let mut record: Value = serde_json::from_str(measurement::EXAMPLE).unwrap();
            *record.pointer_mut(pointer).unwrap() = put;
            assert!(!faults(&record).is_empty(), "{pointer}");
            assert!(plimsoll_core::Measurement::from_value(record).is_err(), "{pointer}");
        }
    }

    #[test]
    fn the_committed_schema_is_this_ones() {
        assert!(page().check(), "run `cargo xtask schema`");
    }
}
