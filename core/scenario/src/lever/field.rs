//! What the fields of a scenario hold: how each type is read and written.

use plimsoll_catalog::software::Version;
use plimsoll_ground::{Bytes, Error, Result, Vocabulary, quoted};
use serde_json::{Value, json};

use super::{Kind, Lever};
use crate::given::{flag, found, fraction, number, one_of, text};
use crate::{limits, memory};

/// A type that stands in a scenario.
pub(crate) trait Field: Sized {
    /// What it holds, unless its row says more.
    const KIND: Kind;

    /// Reads it.
    ///
    /// # Errors
    /// A value of another type, or beyond the bounds of the lever.
    fn read(lever: &Lever, value: &Value) -> Result<Self>;

    /// Writes it; `None` where it says nothing.
    fn write(&self) -> Option<Value>;

    /// Whether it lies within the bounds of the lever.
    ///
    /// # Errors
    /// When it does not.
    fn valid(&self, lever: &Lever) -> Result<()> {
        self.write().map_or(Ok(()), |value| Self::read(lever, &value).map(drop))
    }
}

/// JSON's null says the same as leaving it out.
impl<T: Field> Field for Option<T> {
    const KIND: Kind = T::KIND;

    fn read(lever: &Lever, value: &Value) -> Result<Self> {
        if value.is_null() { Ok(None) } else { T::read(lever, value).map(Some) }
    }

    fn write(&self) -> Option<Value> {
        self.as_ref()?.write()
    }
}

impl Field for u64 {
    const KIND: Kind = Kind::Count { most: Self::MAX };

    fn read(lever: &Lever, value: &Value) -> Result<Self> {
        match lever.row.kind {
            kind @ (Kind::Amount { .. } | Kind::Power { .. } | Kind::Count { .. }) => number(value, lever.path, kind),
            _ => number(value, lever.path, Self::KIND),
        }
    }

    fn write(&self) -> Option<Value> {
        Some(json!(self))
    }
}

impl Field for f64 {
    const KIND: Kind = Kind::Fraction;

    fn read(lever: &Lever, value: &Value) -> Result<Self> {
        fraction(value, lever.path)
    }

    fn write(&self) -> Option<Value> {
        Some(json!(self))
    }
}

impl Field for bool {
    const KIND: Kind = Kind::Flag;

    fn read(lever: &Lever, value: &Value) -> Result<Self> {
        flag(value, lever.path)
    }

    fn write(&self) -> Option<Value> {
        Some(json!(self))
    }
}

/// The id of a row of a catalog.
impl Field for String {
    const KIND: Kind = Kind::Id;

    fn read(lever: &Lever, value: &Value) -> Result<Self> {
        Ok(text(value, lever.path, &example(lever))?.to_owned())
    }

    fn write(&self) -> Option<Value> {
        Some(json!(self))
    }
}

impl Field for Bytes {
    const KIND: Kind = Kind::Size;

    fn read(lever: &Lever, value: &Value) -> Result<Self> {
        let hint = "give a size with its unit, as \"11.6 GiB\", \"11 GB\" or \"12000 MiB\", or a whole number of bytes";
        let refuse = |problem: String| Error::new(lever.path, problem, hint);
        let bytes = match value {
            Value::String(text) => memory::parse(text).map_err(refuse)?,
            Value::Number(number) => number
                .as_u64()
                .map(Self::new)
                .ok_or_else(|| refuse(format!("{number} is not a whole number of bytes")))?,
            other => return Err(refuse(format!("expected a size, found {}", found(other)))),
        };
        if bytes < limits::MEMORY_LEAST {
            return Err(refuse(format!("{bytes} is too little (a forgotten unit?)")));
        }
        if bytes > limits::MEMORY_MOST {
            return Err(refuse(format!("{bytes} is more than the {} any device has", limits::MEMORY_MOST)));
        }
        Ok(bytes)
    }

    fn write(&self) -> Option<Value> {
        Some(json!(memory::print(*self)))
    }
}

/// Its first two numbers, as `2.11` of `2.11.0+cu128`, or three, as the lever has it: what the rules hang on.
impl Field for Version {
    const KIND: Kind = Kind::Version { numbers: 2 };

    fn read(lever: &Lever, value: &Value) -> Result<Self> {
        const LONGEST: usize = 64;
        let example = example(lever);
        let text = text(value, lever.path, &example)?;
        let parse = match lever.row.kind {
            Kind::Version { numbers: 3 } => Self::parse_patch,
            _ => Self::parse,
        };
        parse(text).filter(|_| text.len() <= LONGEST).ok_or_else(|| {
            let hint = format!("write it as {example:?}, or leave {} out", lever.name());
            Error::new(lever.path, format!("{} is not a version", quoted(text)), hint)
        })
    }

    fn write(&self) -> Option<Value> {
        Some(json!(self.to_string()))
    }
}

/// Modules that are trained whole.
impl Field for Vec<String> {
    const KIND: Kind = Kind::Names { all: None, example: &["embed_tokens", "lm_head"] };

    fn read(lever: &Lever, value: &Value) -> Result<Self> {
        if value.is_null() { Ok(Self::new()) } else { module_names(lever, value, "or leave it out") }
    }

    fn write(&self) -> Option<Value> {
        (!self.is_empty()).then(|| json!(self))
    }
}

/// A word of a closed vocabulary.
pub(crate) fn word<T: Vocabulary>(lever: &Lever, value: &Value) -> Result<T> {
    if let Some(word) = T::VALUES.iter().find(|word| value.as_str() == Some(word.word())) {
        return Ok(*word);
    }
    let words: Vec<(&'static str, T)> = T::VALUES.iter().map(|value| (value.word(), *value)).collect();
    one_of(value, lever.path, &words)
}

/// A list of module names; `otherwise` is what may be given in its place.
pub(crate) fn module_names(lever: &Lever, value: &Value, otherwise: &str) -> Result<Vec<String>> {
    let examples = match lever.row.kind {
        Kind::Names { example, .. } => example,
        _ => &[],
    };
    let example = json!(examples).to_string().replace(',', ", ");
    let patterns = examples.iter().any(|name| name.contains('*'));
    let hint = format!("give a list of module names, as {example}, {otherwise}");
    let refuse = |problem: String| Err(Error::new(lever.path, problem, hint.as_str()));
    let items = match value {
        Value::Array(items) if items.is_empty() => return refuse("the list is empty".to_owned()),
        Value::Array(items) if items.len() > limits::TARGETS => {
            return refuse(format!("{} names are too many", items.len()));
        }
        Value::Array(items) => items,
        other => return refuse(format!("expected a list, found {}", found(other))),
    };
    let mut names: Vec<String> = Vec::with_capacity(items.len());
    for item in items {
        let Value::String(name) = item else {
            return refuse(format!("expected a module name, found {}", found(item)));
        };
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.' || (patterns && c == '*');
        if name.is_empty() || name.len() > limits::TARGET_NAME || !name.chars().all(letters) {
            return refuse(format!("{} is not a module name", quoted(name)));
        }
        // peft takes a set: a name given twice counts once.
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(names)
}

/// What the lever reads like: its default.
fn example(lever: &Lever) -> String {
    lever.constant().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
