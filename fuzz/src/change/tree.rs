//! Changes of what an input says: its keys, figures, texts and lists.

use serde_json::{Map, Number, Value, json};

use super::words::{RAW, Words, figure};
use crate::chance::Chance;

/// Stands before the number of a text of [`RAW`], in a text that no good input holds.
const MARK: &str = "raw\u{f8ff}";

/// Most times that an item of a list is repeated.
const OFTEN: usize = 3000;

/// Most times that a value is wrapped: readers stop at 128, and the stack of whoever writes it has an end.
const DEEP: usize = 300;

/// Changes a tree in one place. `other` is one to take parts from.
pub(super) fn change(tree: &mut Value, other: Option<&Value>, words: &Words, chance: &mut Chance) {
    let mut place = chance.below(count(tree));
    let Some(value) = nth_mut(tree, &mut place) else { return };
    // Most of the time as this kind of value is changed.
    match value {
        Value::Object(table) if !chance.once_in(6) => in_table(table, words, chance),
        Value::Array(items) if !chance.once_in(6) => in_list(items, words, chance),
        Value::Number(number) if !chance.once_in(4) => *value = scaled(number, chance),
        Value::Bool(known) if !chance.once_in(4) => *known = !*known,
        Value::String(text) if chance.once_in(3) => in_text(text, words, chance),
        _ => {
            *value = match other {
                Some(other) if chance.once_in(4) => part_of(other, chance),
                _ => any(std::mem::take(value), words, chance),
            }
        }
    }
}

/// The text that JSON's writer made of a tree, with what it would not write in the place of the marks.
pub(super) fn raw(text: &str) -> String {
    let mut text = text.to_owned();
    for (number, raw) in RAW.iter().enumerate() {
        let mark = format!("\"{MARK}{number}.\"");
        if text.contains(&mark) {
            text = text.replace(&mark, raw);
        }
    }
    text
}

fn in_table(table: &mut Map<String, Value>, words: &Words, chance: &mut Chance) {
    let keys: Vec<String> = table.keys().cloned().collect();
    let key = chance.one_of(&keys).cloned();
    match (chance.below(4), key) {
        (0, Some(key)) => drop(table.remove(&key)),
        (1, Some(key)) => {
            if let Some(value) = table.remove(&key) {
                table.insert(words.key(chance), value);
            }
        }
        (2, Some(key)) => {
            let (from, to) = (table.get(&key).cloned(), chance.one_of(&keys).cloned());
            table.extend(to.zip(from));
        }
        _ => drop(table.insert(words.key(chance), any(Value::Null, words, chance))),
    }
}

fn in_list(items: &mut Vec<Value>, words: &Words, chance: &mut Chance) {
    let at = chance.below(items.len());
    match (chance.below(4), items.get(at).cloned()) {
        (0, Some(_)) => drop(items.remove(at)),
        (1, Some(item)) => {
            let times = if chance.once_in(8) { chance.below(OFTEN) } else { chance.below(8) };
            items.splice(at..at, std::iter::repeat_n(item, times));
        }
        (2, Some(_)) => items.reverse(),
        _ => items.insert(at, any(Value::Null, words, chance)),
    }
}

fn in_text(text: &mut String, words: &Words, chance: &mut Chance) {
    let more = words.text(chance);
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let at = chance.one_of(&ends).copied().unwrap_or_default();
    match chance.below(3) {
        0 => text.insert_str(at, &more),
        1 => text.truncate(at),
        _ => text.make_ascii_uppercase(),
    }
}

/// A figure near another one, or at a limit.
fn scaled(number: &Number, chance: &mut Chance) -> Value {
    let near = number.as_u64().and_then(|known| match chance.below(8) {
        0 => known.checked_add(1),
        1 => known.checked_sub(1),
        2 => known.checked_mul(2),
        3 => Some(known / 2),
        4 => known.checked_mul(10),
        5 => known.checked_mul(1000),
        _ => None,
    });
    match near {
        Some(near) => json!(near),
        None => Value::Number(figure(chance)),
    }
}

/// Anything at all.
fn any(known: Value, words: &Words, chance: &mut Chance) -> Value {
    match chance.below(10) {
        0 => Value::Null,
        1 => Value::Bool(chance.once_in(2)),
        2 => json!([]),
        3 => json!({}),
        4 => Value::String(format!("{MARK}{}.", chance.below(RAW.len()))),
        5 => {
            let times = if chance.once_in(16) { chance.below(DEEP) } else { 1 + chance.below(3) };
            let key = chance.once_in(2).then(|| words.key(chance));
            (0..times).fold(known, |inner, _| match &key {
                Some(key) => Value::Object(Map::from_iter([(key.clone(), inner)])),
                None => json!([inner]),
            })
        }
        6 | 7 => Value::String(words.text(chance)),
        _ => Value::Number(figure(chance)),
    }
}

fn part_of(tree: &Value, chance: &mut Chance) -> Value {
    let mut place = chance.below(count(tree));
    let mut copy = tree.clone();
    nth_mut(&mut copy, &mut place).map(std::mem::take).unwrap_or_default()
}

/// How many values there are in a tree, itself among them.
fn count(tree: &Value) -> usize {
    1 + match tree {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(table) => table.values().map(count).sum(),
        _ => 0,
    }
}

/// The value at a place, which is counted down on the way.
fn nth_mut<'a>(tree: &'a mut Value, place: &mut usize) -> Option<&'a mut Value> {
    if *place == 0 {
        return Some(tree);
    }
    *place -= 1;
    match tree {
        Value::Array(items) => items.iter_mut().find_map(|item| nth_mut(item, place)),
        Value::Object(table) => table.values_mut().find_map(|value| nth_mut(value, place)),
        _ => None,
    }
}
