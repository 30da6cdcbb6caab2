//! The way in: a table becomes a valid [`Scenario`], or an error that names the key.

use plimsoll_ground::{Error, Result, quoted};
use serde_json::Value;

use super::fill::Said;
use super::given::{Given, found};
use super::lever::{Entry, SECTIONS, Table};
use super::measured::Scope;
use super::{Scenario, model, text};

/// The format's version, written as `schema`.
pub const SCHEMA: u64 = 1;

impl Scenario {
    /// Reads a scenario from JSON text.
    ///
    /// ```
    /// use plimsoll_scenario::Scenario;
    ///
    /// let error = Scenario::from_json(r#"{"model": {"family": "mlp"}, "input": {"bacth": 64}}"#).unwrap_err();
    /// assert_eq!(error.to_string(), r#"input.bacth: unknown key; did you mean "batch"?"#);
    /// ```
    ///
    /// # Errors
    /// Text that is not JSON, and all of [`Scenario::from_value`]'s.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::from_value(&text::json(text)?)
    }

    /// Reads a scenario from TOML text.
    ///
    /// # Errors
    /// Text that is not TOML, and all of [`Scenario::from_value`]'s.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Self> {
        Self::from_value(&text::toml(text)?)
    }

    /// Reads a scenario from a JSON value. Missing keys take their defaults.
    ///
    /// # Errors
    /// An unknown key, a value of the wrong type or outside its range, an id that is in no catalog, something that is
    /// not estimated yet: each names its key and what to do.
    pub fn from_value(value: &Value) -> Result<Self> {
        Self::read(value, Scope::Estimated)
    }

    pub(super) fn read(value: &Value, scope: Scope) -> Result<Self> {
        let root = Given::root(value)?;
        schema(&root)?;
        not_a_config(&root)?;
        let mut known = vec!["schema"];
        known.extend(SECTIONS.iter().map(|section| section.path));
        root.only(&known)?;
        let mut scenario = Self::constant(model::read(&root.table("model")?, scope)?);
        let mut said = Said::default();
        // The model is what all the rest is read by.
        for section in SECTIONS.iter().filter(|section| section.path != model::MODEL.path) {
            read(section, &root.table(section.path)?, &mut scenario, &mut said)?;
        }
        let scenario = scenario.filled(&said);
        scenario.check()?;
        if scope == Scope::Estimated {
            scenario.estimated()?;
        }
        Ok(scenario)
    }
}

/// Reads what was given in a table; JSON's null says of a lever that may have no value, and of a table, that it has none.
fn read(table: &'static Table, given: &Given<'_>, scenario: &mut Scenario, said: &mut Said) -> Result<()> {
    given.only(&table.names())?;
    for entry in table.entries {
        match (entry, given.get(entry.name())) {
            (_, None) => {}
            (Entry::Lever(lever), Some(Value::Null)) if lever.constant().is_none() => {}
            (Entry::Lever(lever), Some(value)) => said.say(scenario, lever, value)?,
            (Entry::Table(_), Some(Value::Null)) => {}
            (Entry::Table(within), Some(_)) => {
                (within.open)(scenario);
                read(within, &given.table(within.name())?, scenario, said)?;
            }
        }
    }
    Ok(())
}

fn schema(root: &Given<'_>) -> Result<()> {
    let hint = "write schema = 1, or leave it out";
    match root.get("schema") {
        None => Ok(()),
        Some(Value::Number(n)) if n.as_u64() == Some(SCHEMA) => Ok(()),
        Some(Value::Number(n)) if n.as_f64().is_some_and(|n| n > 1.0) => Err(newer("schema", &n.to_string())),
        Some(Value::Number(n)) => Err(Error::new("schema", format!("there is no schema {n}"), hint)),
        Some(other) => Err(Error::new("schema", format!("expected the number 1, found {}", found(other)), hint)),
    }
}

/// The error for a scenario or link of a later format.
pub(super) fn newer(key: &str, version: &str) -> Error {
    Error::new(
        key,
        format!("made by a newer Plimsoll (schema {version}; this one reads schema {SCHEMA})"),
        "update Plimsoll",
    )
}

/// A `config.json` given in the place of a scenario deserves its own words.
fn not_a_config(root: &Given<'_>) -> Result<()> {
    match root.get("model_type") {
        Some(Value::String(name)) if root.get("model").is_none() => Err(Error::new(
            "scenario",
            format!("this is a Hugging Face config.json (model_type {}), not a scenario", quoted(name)),
            "put it under model.hf; on the command line: --hf-config FILE",
        )),
        _ => Ok(()),
    }
}
