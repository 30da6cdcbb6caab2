//! Changes of addresses: of their parameters, and of the JSON that a fragment carries.

use plimsoll_core::scenario::Link;
use serde_json::Value;

use super::words::{Words, figure};
use super::{Seed, tree};
use crate::chance::Chance;

/// Parts of a fragment: a configuration, a record, plans beside.
const PARTS: [&str; 3] = ["m", "r", "p"];

/// A link as its reader takes it apart.
struct Parts<'a> {
    before: &'a str,
    query: Vec<(String, String)>,
    fragment: Vec<(String, String)>,
}

impl<'a> Parts<'a> {
    fn of(link: &'a str) -> Self {
        let (address, fragment) = link.split_once('#').unwrap_or((link, ""));
        let (before, query) = address.split_once('?').unwrap_or((address, ""));
        let pairs = |text: &str| {
            let pairs = text.split('&').filter(|pair| !pair.is_empty());
            pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (k.into(), v.into())).collect()
        };
        Self { before, query: pairs(query), fragment: pairs(fragment) }
    }

    fn write(&self) -> String {
        let join = |pairs: &[(String, String)]| {
            let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
            pairs.join("&")
        };
        let mut link = format!("{}?{}", self.before, join(&self.query));
        if !self.fragment.is_empty() {
            link.push('#');
            link.push_str(&join(&self.fragment));
        }
        link
    }
}

/// A changed link.
pub(super) fn hostile(link: &str, seeds: &[Seed], carried: &[Value], words: &Words, chance: &mut Chance) -> String {
    let mut parts = Parts::of(link);
    for _ in 0..=chance.below(super::CHANGES) {
        let at = chance.below(parts.query.len());
        match chance.below(8) {
            0 if !parts.query.is_empty() => drop(parts.query.remove(at)),
            1 => {
                let pair = parts.query.get(at).cloned();
                parts.query.extend(pair);
            }
            2 => {
                let other = chance.one_of(seeds).map(|seed| String::from_utf8_lossy(&seed.text).into_owned());
                let mut other = Parts::of(other.as_deref().unwrap_or_default()).query;
                if !other.is_empty() {
                    parts.query.push(other.swap_remove(chance.below(other.len())));
                }
            }
            3 => {
                if let Some(pair) = parts.query.get_mut(at) {
                    pair.0 = escaped(&words.key(chance), chance);
                }
            }
            4 => {
                parts.query.push((escaped(&words.key(chance), chance), value(words, chance)));
            }
            5 | 6 => {
                if let Some(pair) = parts.query.get_mut(at) {
                    pair.1 = value(words, chance);
                }
            }
            _ => {
                let mut inside = chance.one_of(carried).cloned().unwrap_or_default();
                let part = chance.one_of(&PARTS).copied().unwrap_or_default();
                // What is carried lies between good and broken, as what is written does.
                for _ in 0..chance.below(super::CHANGES) {
                    tree::change(&mut inside, None, words, chance);
                }
                let model_type = inside.get("model_type").and_then(Value::as_str).map(str::to_owned);
                parts.fragment.retain(|(key, _)| key != part);
                parts.fragment.push((part.to_owned(), Link::pack(&tree::raw(&inside.to_string()))));
                if part == "m" && !chance.once_in(8) {
                    parts.query.retain(|(key, _)| !["model", "family", "hf", "task"].contains(&key.as_str()));
                    parts.query.push(("hf".to_owned(), model_type.unwrap_or_default()));
                }
            }
        }
    }
    parts.write()
}

fn value(words: &Words, chance: &mut Chance) -> String {
    let text = if chance.once_in(2) { figure(chance).to_string() } else { words.text(chance) };
    escaped(&text, chance)
}

/// As addresses are written, or not.
fn escaped(text: &str, chance: &mut Chance) -> String {
    if chance.once_in(8) {
        return text.to_owned();
    }
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b',' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
