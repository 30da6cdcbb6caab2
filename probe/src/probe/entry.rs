//! Scenarios that come with the program: those of the suite and of the ladder's presets, each with a small version for
//! machines without a card.

use plimsoll_core::scenario::{Mode, parse_memory, text};
use plimsoll_core::{Bytes, Error, Scenario};
use serde_json::{Value, json};

use super::Where;

/// One of them.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it is called on the command line.
    pub name: String,
    /// What it is there for.
    pub why: String,
    /// How long it takes on a laptop's card, and in small on a processor; generous.
    pub seconds: (u64, u64),
    /// What it is to be pushed over, if anything.
    pub over: Option<Over>,
    /// Hard cap in small.
    cpu_limit: Option<Bytes>,
    scenario: Value,
    cpu: Value,
}

/// What an entry is to be pushed over, so that the guard has to halve its micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// A hard cap of half of the card's memory.
    Limit,
    /// The card's own memory.
    Card,
}

impl Entry {
    /// The scenario, or its small version.
    ///
    /// # Errors
    /// None for the lists that come with the program: a test reads them all.
    pub fn scenario(&self, small: bool) -> Result<Scenario, Error> {
        let mut value = self.scenario.clone();
        if small {
            overlay(&mut value, &self.cpu);
        }
        Scenario::from_value_to_measure(&value)
    }

    /// The entry with the steps that are run where these flags say how many: the estimate is of as many.
    ///
    /// # Errors
    /// As [`Self::scenario`].
    pub fn with_steps(mut self, place: &Where) -> Result<Self, Error> {
        let scenario = place.with_steps(self.scenario(false)?);
        if scenario.training.mode == Mode::Train {
            let steps = scenario.training.optimizer_steps;
            overlay(&mut self.scenario, &json!({ "training": { "optimizer_steps": steps } }));
        }
        Ok(self)
    }

    /// How long it takes.
    pub const fn expected(&self, small: bool) -> u64 {
        if small { self.seconds.1 } else { self.seconds.0 }
    }

    /// The hard cap of the small version.
    pub const fn small_limit(&self) -> Option<Bytes> {
        self.cpu_limit
    }
}

/// Lays the tables of `over` on those of `base`. A model that is named anew replaces the old one whole.
fn overlay(base: &mut Value, over: &Value) {
    let (Value::Object(base), Value::Object(over)) = (base, over) else { return };
    for (key, value) in over {
        let names_model = ["catalog", "hf", "family"].iter().any(|source| value.get(source).is_some());
        match base.get_mut(key) {
            Some(inner) if inner.is_object() && value.is_object() && !(key == "model" && names_model) => {
                overlay(inner, value);
            }
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Reads a list: a TOML file with a table for each entry.
///
/// # Errors
/// None for the lists that come with the program: a test reads them all.
pub fn read(toml: &str) -> Result<Vec<Entry>, Error> {
    let list = text::toml(toml)?;
    let Some(entries) = list["entry"].as_array() else {
        return Err(Error::new("entry", "there is none", "write [[entry]]"));
    };
    entries.iter().map(entry).collect()
}

fn entry(table: &Value) -> Result<Entry, Error> {
    let name = table["name"].as_str().unwrap_or_default().to_owned();
    let wrong = |key: &str| Error::new(format!("{name}.{key}"), "it is missing or wrong", "see the other entries");
    let word = |key: &str| table[key].as_str().map(str::to_owned).ok_or_else(|| wrong(key));
    let number = |key: &str| table[key].as_u64().ok_or_else(|| wrong(key));
    let over = match table["over"].as_str() {
        None if table["over"].is_null() => None,
        Some("limit") => Some(Over::Limit),
        Some("card") => Some(Over::Card),
        _ => return Err(wrong("over")),
    };
    let cpu_limit = match table["cpu_limit"].as_str() {
        None => None,
        Some(size) => Some(parse_memory(size).map_err(|_| wrong("cpu_limit"))?),
    };
    Ok(Entry {
        name: word("name")?,
        why: word("why")?,
        seconds: (number("seconds")?, number("cpu_seconds")?),
        over,
        cpu_limit,
        scenario: table["scenario"].clone(),
        cpu: table["cpu"].clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_version_is_laid_over() {
        let mut value =
            json!({ "model": { "catalog": "gpt2", "task": "causal-lm" }, "input": { "batch": 8, "seq": 512 } });
        overlay(&mut value, &json!({ "input": { "batch": 2 }, "training": { "precision": "fp32" } }));
        assert_eq!(value["input"], json!({ "batch": 2, "seq": 512 }));
        assert_eq!(value["training"]["precision"], "fp32");
        overlay(&mut value, &json!({ "model": { "hf": { "model_type": "gpt2" } } }));
        assert_eq!(value["model"], json!({ "hf": { "model_type": "gpt2" } }), "replaced whole");
        overlay(&mut value, &json!({ "model": { "task": "causal-lm" } }));
        assert_eq!(value["model"]["hf"]["model_type"], "gpt2");
        assert_eq!(value["model"]["task"], "causal-lm");
    }

    #[test]
    fn a_list_says_what_it_lacks() {
        assert_eq!(read("a = 1").unwrap_err().key, "entry");
        let error = read("[[entry]]\nname = \"a\"\nwhy = \"b\"\nseconds = 1\n").unwrap_err();
        assert_eq!(error.key, "a.cpu_seconds");
    }
}
