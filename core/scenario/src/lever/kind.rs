//! What a lever holds, for whoever has only text to give it, or must offer its values.

use plimsoll_ground::Word;
use serde_json::{Number, Value, json};

/// What a lever holds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number from 1 to `most`.
    Count {
        /// The largest accepted.
        most: u64,
    },
    /// 0, which says that there is none, or a whole number from `least` to `most`.
    Amount {
        /// The smallest accepted beside 0.
        least: u64,
        /// The largest accepted.
        most: u64,
    },
    /// 0, which says that there is none, or a power of two.
    Power {
        /// The largest accepted.
        most: u64,
    },
    /// A probability, 0 <= p < 1.
    Fraction,
    /// true or false.
    Flag,
    /// One of these words.
    Words(&'static [Word]),
    /// Names of modules.
    Names {
        /// The word that may stand in the place of a list.
        all: Option<&'static str>,
        /// Names that read as such a list does.
        example: &'static [&'static str],
    },
    /// An amount of memory.
    Size,
    /// A version of a package, of which so many numbers count.
    Version {
        /// Two or three.
        numbers: u8,
    },
    /// The id of a row of a catalog.
    Id,
}

impl Kind {
    /// The value that `text` stands for. Text that is no such value stays text, so that the reading says what is wrong
    /// with it.
    pub fn value(self, text: &str) -> Value {
        match self {
            Self::Count { .. } | Self::Amount { .. } | Self::Power { .. } | Self::Fraction => Self::number(text),
            Self::Flag => text.parse::<bool>().map_or_else(|_| text.into(), Value::Bool),
            Self::Names { .. } if text == crate::ALL_LINEAR => text.into(),
            Self::Names { .. } => text.split(',').map(|name| Value::from(name.trim())).collect(),
            Self::Words(_) | Self::Size | Self::Version { .. } | Self::Id => text.into(),
        }
    }

    /// The number that `text` stands for, or the text.
    pub(crate) fn number(text: &str) -> Value {
        serde_json::from_str::<Number>(text).map_or_else(|_| text.into(), Value::Number)
    }

    /// Values that show what it can hold: every word, both values of a flag, two of whatever there are many of.
    pub fn samples(self) -> Vec<Value> {
        match self {
            Self::Count { .. } => vec![json!(2), json!(3)],
            Self::Amount { least, .. } => vec![json!(0), json!(least.max(3))],
            Self::Power { .. } => vec![json!(0), json!(4)],
            Self::Fraction => vec![json!(0.0), json!(0.1)],
            Self::Flag => vec![json!(false), json!(true)],
            Self::Words(words) => words.iter().map(|word| word.key.into()).collect(),
            Self::Names { all, example } => all.map(Value::from).into_iter().chain([json!(example)]).collect(),
            Self::Size => vec![json!("1 GiB"), json!("2 GiB")],
            Self::Version { numbers: 2 } => vec![json!("2.4"), json!("4.57")],
            Self::Version { .. } => vec![json!("0.43.1"), json!("0.49")],
            Self::Id => Vec::new(),
        }
    }

    /// What stands for a value in a line of help: `N`, `WORD`.
    pub const fn placeholder(self) -> &'static str {
        match self {
            Self::Count { .. } | Self::Amount { .. } | Self::Power { .. } => "N",
            Self::Fraction => "P",
            Self::Flag => "BOOL",
            Self::Words(_) => "WORD",
            Self::Names { .. } => "NAMES",
            Self::Size => "SIZE",
            Self::Version { .. } => "VERSION",
            Self::Id => "ID",
        }
    }

    /// What it takes, in words.
    pub fn in_words(self) -> String {
        match self {
            Self::Count { most } => format!("a whole number from 1 to {most}"),
            Self::Amount { least: 0 | 1, most } => format!("a whole number from 0 to {most}"),
            Self::Amount { least, most } => format!("0, or a whole number from {least} to {most}"),
            Self::Power { most } => format!("0, or a power of two up to {most}"),
            Self::Fraction => "a number from 0 up to but not including 1".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Words(_) => "one of these words".to_owned(),
            Self::Names { all, example } => {
                let all = all.map(|word| format!(", or {word:?}")).unwrap_or_default();
                format!("a list of module names, as {}{all}", json!(example))
            }
            Self::Size => "a size with its unit, as \"11.6 GiB\", or a whole number of bytes".to_owned(),
            Self::Version { numbers: 2 } => "a version, major.minor".to_owned(),
            Self::Version { .. } => "a version, major.minor.patch".to_owned(),
            Self::Id => "a name of the catalog".to_owned(),
        }
    }

    /// What is wrong with this number, where this holds whole numbers. `None`: nothing.
    pub fn refuses(self, n: u64) -> Option<String> {
        let (small, large) = match self {
            Self::Count { most } => (n < 1, n > most),
            Self::Amount { least, most } => (n > 0 && n < least, n > most),
            Self::Power { most } if n <= most && n > 0 && !n.is_power_of_two() => {
                return Some(format!("{n} is no power of two"));
            }
            Self::Power { most } => (false, n > most),
            _ => (false, false),
        };
        let what = if small { "small" } else { "large" };
        (small || large).then(|| format!("{n} is too {what}"))
    }
}
