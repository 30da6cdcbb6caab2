//! Words that mean something to the readers: the keys and the texts of good inputs, and figures at which readers go wrong.

use std::collections::BTreeSet;

use serde_json::{Number, Value};

use crate::chance::Chance;

/// Longest text that is remembered: a hull within a scenario is no word.
const LONGEST: usize = 64;

/// Whole numbers about the limits of scenarios, of types, and of what floating point can tell apart.
const WHOLE: [u64; 34] = [
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    13,
    16,
    64,
    100,
    127,
    128,
    255,
    256,
    1000,
    1024,
    2047,
    2048,
    2049,
    4096,
    65_535,
    65_536,
    1 << 20,
    1 << 24,
    (1 << 24) + 1,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    (1 << 53) + 1,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];

const BELOW_ZERO: [i64; 3] = [-1, -(1 << 31), i64::MIN];

const BROKEN: [f64; 10] = [0.0, -0.0, 0.5, 0.1, 0.999_999_999_999, 1.5, 1e-308, 1e18, 1e300, f64::MAX];

/// What a good input says nothing of.
const ODD: [&str; 22] = [
    "",
    " ",
    "\u{0}",
    "\u{1b}[31m",
    "\u{202e}",
    "\u{200b}",
    "\u{e0041}",
    "\u{feff}",
    "..",
    "../../../../etc/passwd",
    "/home/user name/x.py",
    "C:\\Users\\x y\\z",
    "user@host",
    "<script>",
    "%00",
    "%",
    "1e308",
    "-0",
    "NaN",
    "11 GiB",
    "18446744073709551616 GiB",
    "0.0000000000001 GiB",
];

/// What JSON's own writer would never write: [`super::tree::raw`] puts it in the place of a mark.
pub(super) const RAW: [&str; 12] = [
    "1e999",
    "-1e999",
    "18446744073709551616",
    "123456789012345678901234567890123456789012345678901234567890",
    "0.1e-400",
    "1E+2",
    "-0",
    "NaN",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "{\"a\":1,\"a\":2}",
];

/// The keys and texts of good inputs.
#[derive(Debug, Default)]
pub(super) struct Words {
    keys: Vec<String>,
    texts: Vec<String>,
}

impl Words {
    /// Takes in what stands in a tree.
    pub fn learn(&mut self, tree: &Value) {
        let mut found = (BTreeSet::new(), BTreeSet::new());
        gather(tree, &mut found);
        let (keys, texts) = found;
        let add = |known: &mut Vec<String>, new: BTreeSet<String>| {
            known.extend(new);
            known.sort();
            known.dedup();
        };
        add(&mut self.keys, keys);
        add(&mut self.texts, texts);
    }

    /// A key.
    pub fn key(&self, chance: &mut Chance) -> String {
        match chance.one_of(&self.keys) {
            Some(key) if !chance.once_in(16) => key.clone(),
            _ => odd(chance),
        }
    }

    /// A text.
    pub fn text(&self, chance: &mut Chance) -> String {
        match chance.one_of(&self.texts) {
            Some(text) if !chance.once_in(4) => text.clone(),
            _ => odd(chance),
        }
    }
}

fn odd(chance: &mut Chance) -> String {
    let odd = chance.one_of(&ODD).copied().unwrap_or_default();
    if chance.once_in(16) { odd.repeat(1 + chance.below(4096)) } else { odd.to_owned() }
}

/// A figure at a limit.
pub(super) fn figure(chance: &mut Chance) -> Number {
    let whole = |chance: &mut Chance| Number::from(chance.one_of(&WHOLE).copied().unwrap_or_default());
    match chance.below(8) {
        0 => Number::from(chance.one_of(&BELOW_ZERO).copied().unwrap_or_default()),
        1 => chance.one_of(&BROKEN).and_then(|broken| Number::from_f64(*broken)).unwrap_or_else(|| whole(chance)),
        _ => whole(chance),
    }
}

fn gather(tree: &Value, found: &mut (BTreeSet<String>, BTreeSet<String>)) {
    match tree {
        Value::String(text) if text.len() <= LONGEST => drop(found.1.insert(text.clone())),
        Value::Array(items) => items.iter().for_each(|item| gather(item, found)),
        Value::Object(table) => {
            for (key, value) in table {
                found.0.insert(key.clone());
                gather(value, found);
            }
        }
        _ => {}
    }
}
