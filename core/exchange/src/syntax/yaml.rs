//! YAML, by the events of a parser: so that aliases, which repeat what they name, count against one budget.

use plimsoll_ground::{Error, Result};
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

use super::{MOST_DEPTH, MOST_KEYS, scalar};

/// One table or list that is still open.
enum Open {
    List(Vec<Value>),
    Table(Map<String, Value>, Option<String>),
}

/// The first document of a text.
pub fn read(text: &str) -> Result<Value> {
    let wrong = |problem: String| Error::new("from", problem, "mend it there, or give the file that was meant");
    let mut open: Vec<(Open, usize)> = Vec::new();
    let mut anchors: Vec<(usize, Value)> = Vec::new();
    let mut left = MOST_KEYS;
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| wrong(format!("it is not YAML: {error}")))?;
        let (value, anchor) = match event {
            Event::SequenceStart(anchor, _) => {
                open.push((Open::List(Vec::new()), anchor));
                if open.len() > MOST_DEPTH {
                    return Err(wrong("its lists stand too deep in one another".to_owned()));
                }
                continue;
            }
            Event::MappingStart(anchor, _) => {
                open.push((Open::Table(Map::new(), None), anchor));
                if open.len() > MOST_DEPTH {
                    return Err(wrong("its tables stand too deep in one another".to_owned()));
                }
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some((Open::List(items), anchor)) => (Value::Array(items), anchor),
                Some((Open::Table(map, _), anchor)) => (Value::Object(map), anchor),
                None => continue,
            },
            Event::Scalar(text, ScalarStyle::Plain, anchor, _) => (scalar(&text), anchor),
            Event::Scalar(text, _, anchor, _) => (Value::String(text.into_owned()), anchor),
            Event::Alias(anchor) => {
                let named = anchors.iter().rev().find(|(id, _)| *id == anchor).map(|(_, value)| value);
                let value = named.ok_or_else(|| wrong("an alias names nothing that came before".to_owned()))?;
                let many = nodes(value);
                left = left.checked_sub(many).ok_or_else(|| wrong("its aliases repeat too much".to_owned()))?;
                (value.clone(), 0)
            }
            Event::DocumentEnd => break,
            _ => continue,
        };
        left = left.checked_sub(1).ok_or_else(|| wrong("it has too many keys".to_owned()))?;
        if anchor != 0 {
            anchors.push((anchor, value.clone()));
        }
        match open.last_mut() {
            None => return Ok(value),
            Some((Open::List(items), _)) => items.push(value),
            Some((Open::Table(map, key), _)) => match key.take() {
                None => *key = Some(name(value)),
                Some(key) => put(map, key, value),
            },
        }
    }
    Err(wrong("there is nothing in it".to_owned()))
}

/// A key as text.
fn name(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Sets a key; `<<` brings in the keys of others that are not there.
fn put(map: &mut Map<String, Value>, key: String, value: Value) {
    if key != "<<" {
        map.insert(key, value);
        return;
    }
    let from = match value {
        Value::Array(tables) => tables,
        one => vec![one],
    };
    for (key, value) in from.into_iter().filter_map(|table| table.as_object().cloned()).flatten() {
        map.entry(key).or_insert(value);
    }
}

fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nodes).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_what_pyyaml_takes_them_for() {
        let text = "a: yes\nb: 'yes'\nc: 5e8\nd: 1_000\ne: ~\nf: [q_proj, v_proj]\ng: bf16\nh: -1\ni: 0.05\n";
        let expected = json!({ "a": true, "b": "yes", "c": 5e8, "d": 1000, "e": null, "f": ["q_proj", "v_proj"], "g": "bf16", "h": -1, "i": 0.05 });
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn aliases_and_merged_tables_repeat_what_they_name() {
        let text = "x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\nz: *x\n";
        let expected = json!({ "x": { "a": 1, "b": 2 }, "y": { "a": 1, "b": 3 }, "z": { "a": 1, "b": 2 } });
        assert_eq!(read(text).unwrap(), expected);
    }
}
