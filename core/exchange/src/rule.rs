//! One row a key: what a tool's key does to a draft.

use serde_json::Value;

use crate::draft::Draft;

/// A key of a tool, as it is written in its files; `x.*` is every key of the table `x` that has no row of its own.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The key.
    pub key: &'static str,
    /// What it does.
    pub does: Does,
}

/// What a key does.
#[derive(Clone, Copy, Debug)]
pub enum Does {
    /// A whole number of 1 or more.
    Count(fn(&mut Draft) -> &mut Option<u64>),
    /// A whole number of 0 or more.
    Amount(fn(&mut Draft) -> &mut Option<u64>),
    /// A whole number, where a negative one leaves it to the tool.
    Degree(fn(&mut Draft) -> &mut Option<u64>),
    /// True or false.
    Flag(fn(&mut Draft) -> &mut Option<bool>),
    /// A probability.
    Chance(fn(&mut Draft) -> &mut Option<f64>),
    /// Something of its own.
    By(fn(&mut Draft, &Value) -> Heard),
    /// Something of its own, to which `auto` means something too.
    Auto(fn(&mut Draft, &Value) -> Heard),
    /// It takes no memory of the card.
    Free,
    /// It moves bytes and is not estimated: why, or what it would do. Nothing where it is off.
    Beyond(&'static str),
}

/// What came of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is part of the scenario now.
    Taken,
    /// It says nothing: left to the default, or switched off.
    Silent,
    /// It takes no memory of the card.
    Free,
    /// It moves bytes and is not estimated: what that means.
    Beyond(String),
    /// It does not make sense: what was expected.
    Wrong(String),
}

impl Heard {
    /// The value is none of those that are known.
    pub fn wrong(expected: &str) -> Self {
        Self::Wrong(format!("expected {expected}"))
    }
}

/// Whether a value leaves it to others.
pub fn silent(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|text| text.is_empty() || text == "auto")
}

/// Whether a value switches something off.
fn off(value: &Value) -> bool {
    let word = |text: &str| matches!(text.to_ascii_lowercase().as_str(), "" | "none" | "no" | "false" | "0");
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => word(text),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) => false,
    }
}

/// A whole number of 1 or more; numbers come as text from some tools.
pub fn count(value: &Value) -> Option<u64> {
    match value {
        // 5e8 is a float in YAML and JSON.
        Value::Number(number) => number.as_u64().or_else(|| {
            let float = number.as_f64().filter(|n| n.fract() == 0.0 && *n >= 1.0 && *n < 9e15)?;
            format!("{float:.0}").parse().ok()
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|n| *n > 0)
}

/// True or false; both come as text from some tools.
pub fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => Some(true),
            "false" | "no" | "0" => Some(false),
            _ => None,
        },
        Value::Number(number) => match number.as_u64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        },
        _ => None,
    }
}

/// A number.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok().filter(|n: &f64| n.is_finite()),
        _ => None,
    }
}

/// Names in a list, or one, or several parted by commas.
pub fn names(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => {
            Some(text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect())
        }
        Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

impl Does {
    /// Does it.
    pub fn to(self, draft: &mut Draft, value: &Value) -> Heard {
        match self {
            Self::By(what) if !silent(value) => what(draft, value),
            Self::Auto(what) if !value.is_null() => what(draft, value),
            Self::Free => Heard::Free,
            Self::Beyond(_) if off(value) || silent(value) => Heard::Silent,
            Self::Beyond(why) => Heard::Beyond(why.to_owned()),
            _ if silent(value) => Heard::Silent,
            Self::Degree(place) if number(value).is_some_and(|n| n < 0.0) => {
                *place(draft) = None;
                Heard::Taken
            }
            Self::Count(place) | Self::Degree(place) => match count(value) {
                Some(number) => {
                    *place(draft) = Some(number);
                    Heard::Taken
                }
                None => Heard::wrong("a whole number of 1 or more"),
            },
            Self::Amount(place) => match count(value).or_else(|| (number(value) == Some(0.0)).then_some(0)) {
                Some(number) => {
                    *place(draft) = Some(number);
                    Heard::Taken
                }
                None => Heard::wrong("a whole number of 0 or more"),
            },
            Self::Flag(place) => match flag(value) {
                Some(said) => {
                    *place(draft) = Some(said);
                    Heard::Taken
                }
                None => Heard::wrong("true or false"),
            },
            Self::Chance(place) => match number(value).filter(|p| (0.0..1.0).contains(p)) {
                Some(said) => {
                    *place(draft) = Some(said);
                    Heard::Taken
                }
                None => Heard::wrong("a number from 0 up to but not including 1"),
            },
            Self::By(_) | Self::Auto(_) => Heard::Silent,
        }
    }
}

/// The row of a key, its own or that of the table it stands in, and where it stands among the rows: what one key means may
/// hang on another, whose row then stands before it.
pub fn find(tables: &[&[Rule]], key: &str) -> Option<(usize, Does)> {
    let rows = || (0..).zip(tables.iter().flat_map(|rules| rules.iter()));
    let own = rows().find(|(_, rule)| rule.key == key);
    let table = || {
        rows().find(|(_, rule)| {
            let within = rule.key.strip_suffix('*');
            within.is_some_and(|table| key.starts_with(table) || key == table.trim_end_matches('.'))
        })
    };
    own.or_else(table).map(|(place, rule)| (place, rule.does))
}
