//! Reading sizes out of a `config.json` or out of a family's own keys.

use std::sync::LazyLock;

use plimsoll_catalog::software::{Rules, rules};
use plimsoll_ground::{Error, Result};
use serde_json::{Map, Value};

use crate::attribute_map::{Alias, aliases};

/// The largest size any single dimension may have; keeps products of a few of them far from overflow.
pub const MAX_SIZE: u64 = 1 << 24;
/// The most layers a model may have: ten times the deepest published.
pub const MAX_LAYERS: u64 = 2048;

/// A model's configuration, with the key it stands under for error messages.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    map: &'a Map<String, Value>,
    prefix: &'static str,
    aliases: &'static [Alias],
    /// Whether its table of positions is asked for more than how they are scaled.
    asks_table: bool,
}

impl<'a> Config<'a> {
    /// The content of a Hugging Face `config.json`.
    pub fn hugging_face(map: &'a Map<String, Value>, software: Rules) -> Self {
        let model_type = map.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let asks_table = software.has(&rules::POSITIONS_HAVE_A_TABLE);
        Self { map, prefix: "model.hf", aliases: aliases(model_type, software), asks_table }
    }

    /// The keys of one of our own families.
    pub fn family(map: &'a Map<String, Value>) -> Self {
        Self { map, prefix: "model", aliases: &[], asks_table: true }
    }

    /// The nested configuration `key`, whose keys errors name behind `prefix`; empty when missing.
    ///
    /// # Errors
    /// Anything that is not a table.
    pub fn section(&self, key: &str, prefix: &'static str) -> Result<Self> {
        static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        match self.get(key) {
            None => Ok(Self { map: &EMPTY, prefix, aliases: &[], ..*self }),
            Some(Value::Object(map)) => Ok(Self { map, prefix, aliases: &[], ..*self }),
            Some(other) => {
                Err(self.error(key, format!("{other} is not a configuration"), "paste the whole config.json"))
            }
        }
    }

    /// The table of positions, where more is read in it than how they are scaled.
    pub fn positions(&self) -> Option<Self> {
        // `rope_scaling or self.rope_parameters` (`convert_rope_params_to_dict`).
        let tables = ["rope_scaling", "rope_parameters"];
        tables.iter().find_map(|key| self.table(key)).filter(|_| self.asks_table)
    }

    /// `model_type`, empty when missing.
    pub fn model_type(&self) -> &'a str {
        self.map.get("model_type").and_then(Value::as_str).unwrap_or_default()
    }

    /// An error about `key`, under the name it is written with.
    pub fn error(&self, key: &str, problem: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::new(format!("{}.{}", self.prefix, self.written(key)), problem, hint)
    }

    /// The name that `key` is written with: another one where the configuration has that.
    fn written<'k>(&self, key: &'k str) -> &'k str {
        let there = |alias: &str| self.map.get(alias).is_some_and(|value| !value.is_null());
        let alias = self.aliases.iter().find(|(alias, name)| *name == key && there(alias));
        alias.map_or(key, |(alias, _)| alias)
    }

    /// The value of `key`; `null` counts as missing.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(self.written(key)).filter(|v| !v.is_null())
    }

    /// Whether `key` is present and not `null`.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether `key` stands in the configuration at all, be it as `null`: a key that is absent takes the class's default,
    /// one that is `null` takes none.
    pub fn mentions(&self, key: &str) -> bool {
        self.map.contains_key(self.written(key))
    }

    /// The strings of the array `key`, where there is one.
    pub fn texts(&self, key: &str) -> Option<Vec<&'a str>> {
        self.get(key)?.as_array()?.iter().map(Value::as_str).collect()
    }

    /// What kinds of attention so many layers have, where `layer_types` lists them: each one of `known`.
    ///
    /// # Errors
    /// A kind the class has nothing for, and another number of them (`validate_layer_type` in `configuration_utils.py`).
    pub fn layer_types(&self, layers: u64, known: &[&str]) -> Result<Option<Vec<&'a str>>> {
        const KEY: &str = "layer_types";
        let Some(types) = self.texts(KEY) else { return Ok(None) };
        let problem = match types.iter().find(|kind| !known.contains(kind)) {
            Some(kind) => format!("transformers has no layers of kind {kind:?} in {}", self.model_type()),
            None if types.len() as u64 != layers => format!("{} entries for {layers} layers", types.len()),
            None => return Ok(Some(types)),
        };
        Err(self.error(KEY, problem, format!("give {} for every layer, or leave the key out", known.join(" or "))))
    }

    /// How many entries the table `key` has, where there is one.
    pub fn entries(&self, key: &str) -> Option<u64> {
        Some(self.get(key)?.as_object()?.len() as u64)
    }

    /// The whole numbers of the array `key`, where there is one.
    pub fn counts(&self, key: &str) -> Option<Vec<u64>> {
        self.get(key)?.as_array()?.iter().map(Value::as_u64).collect()
    }

    /// A size: a whole number from 1 to 2^24. `null` is none: no module can be made of it, and transformers 5 says so as it reads it
    /// ("expected int, got NoneType").
    ///
    /// # Errors
    /// Anything else.
    pub fn size(&self, key: &str, default: u64) -> Result<u64> {
        match self.optional_size(key)? {
            Some(n) => Ok(n),
            None if self.mentions(key) => Err(self.error(
                key,
                "null is not a size",
                format!("leave it out, which is {default}, or give a number"),
            )),
            None => Ok(default),
        }
    }

    /// A size that may be absent, or `null`.
    ///
    /// # Errors
    /// As [`Config::size`].
    pub fn optional_size(&self, key: &str) -> Result<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let hint = format!("give a whole number from 1 to {MAX_SIZE}");
        match value.as_u64() {
            Some(n @ 1..=MAX_SIZE) => Ok(Some(n)),
            Some(n) => Err(self.error(key, format!("{n} is out of range"), hint)),
            None => Err(self.error(key, format!("{value} is not a size"), hint)),
        }
    }

    /// The side of a square: a size, or a list of two that are the same.
    ///
    /// # Errors
    /// Anything else.
    pub fn side(&self, key: &str, default: u64) -> Result<u64> {
        let Some(Value::Array(sides)) = self.get(key) else { return self.size(key, default) };
        match sides.as_slice() {
            [high, wide] if high == wide => match high.as_u64() {
                Some(side @ 1..=MAX_SIZE) => Ok(side),
                _ => Err(self.error(key, format!("{high} is not a size"), "give whole numbers above 0")),
            },
            _ => {
                let problem = format!("{} is no square, and others are not estimated yet", Value::from(sides.clone()));
                Err(self.error(key, problem, "give one number, or the same twice"))
            }
        }
    }

    /// A whole number from 0 to 2^24, or `null`.
    ///
    /// # Errors
    /// Anything else.
    pub fn count(&self, key: &str, default: u64) -> Result<u64> {
        match self.get(key) {
            Some(value) if value.as_u64() == Some(0) => Ok(0),
            _ => Ok(self.optional_size(key)?.unwrap_or(default)),
        }
    }

    /// A number of layers: 1 to 2048.
    ///
    /// # Errors
    /// Anything else.
    pub fn layers(&self, key: &str, default: u64) -> Result<u64> {
        let n = self.size(key, default)?;
        if n > MAX_LAYERS {
            return Err(self.error(key, format!("{n} layers are too many"), format!("give at most {MAX_LAYERS}")));
        }
        Ok(n)
    }

    /// A flag.
    ///
    /// # Errors
    /// Anything but `true` and `false`.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(b)) => Ok(*b),
            Some(other) => Err(self.error(key, format!("{other} is not a flag"), "give true or false")),
        }
    }

    /// A dropout probability: 0 <= p < 1.
    ///
    /// # Errors
    /// Anything else.
    pub fn probability(&self, key: &str, default: f64) -> Result<f64> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => match value.as_f64() {
                Some(p) if (0.0..1.0).contains(&p) => Ok(p),
                _ => Err(self.error(key, format!("{value} is not a probability"), "give a number from 0 up to 1")),
            },
        }
    }

    /// A finite number, where `key` holds one.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    /// The table `key`, where it holds one.
    pub fn table(&self, key: &str) -> Option<Self> {
        self.get(key)?.as_object().map(|map| Self { map, aliases: &[], ..*self })
    }

    /// The table that is named by `number`, with zeros before it or without, where there is one.
    pub fn numbered(&self, number: u64) -> Option<Self> {
        let (_, value) = self.map.iter().find(|(key, _)| key.parse() == Ok(number))?;
        value.as_object().map(|map| Self { map, aliases: &[], ..*self })
    }

    /// A text.
    ///
    /// # Errors
    /// Anything that is not a string.
    pub fn text(&self, key: &str, default: &'a str) -> Result<&'a str> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::String(s)) => Ok(s),
            Some(other) => Err(self.error(key, format!("{other} is not a text"), "give a string")),
        }
    }
}

/// `total` split evenly into `parts`.
///
/// # Errors
/// When it does not divide.
pub fn divide(config: &Config<'_>, total: (&str, u64), parts: (&str, u64)) -> Result<u64> {
    if !total.1.is_multiple_of(parts.1) {
        return Err(config.error(
            parts.0,
            format!("{} {} does not divide {} {}", parts.0, parts.1, total.0, total.1),
            format!("choose {} so that {} / {} is whole", parts.0, total.0, parts.0),
        ));
    }
    Ok(total.1 / parts.1)
}
