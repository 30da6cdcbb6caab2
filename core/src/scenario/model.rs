//! `[model]`: which architecture, and what is trained on it.

use serde_json::{Map, Value};

use super::nearest::{nearest, nearest_ids, quoted};
use super::supported::{self, FAMILIES, Family, FamilyKeyKind, MODEL_TYPES, ModelType};
use super::table::{Table, found};
use super::{Model, ModelSource, Task, keys, limits, text};
use crate::{Error, Result, catalog};

/// What a model lets the rest of the scenario say: the row of [`supported`] it belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Traits {
    /// A Hugging Face architecture.
    HuggingFace(&'static ModelType),
    /// A family of our own.
    Family(&'static Family),
}

impl Traits {
    /// What can be trained on it; the first is the default.
    pub const fn tasks(self) -> &'static [Task] {
        match self {
            Self::HuggingFace(model_type) => model_type.tasks,
            Self::Family(family) => family.tasks,
        }
    }

    /// Whether a sample is a sequence.
    pub const fn has_sequence(self) -> bool {
        match self {
            Self::HuggingFace(_) => true,
            Self::Family(family) => family.has_sequence,
        }
    }

    /// Whether it takes an attention mask.
    pub const fn has_mask(self) -> bool {
        match self {
            Self::HuggingFace(_) => true,
            Self::Family(family) => family.has_mask,
        }
    }

    /// Whether a sequence longer than [`ModelSource::positions`] cannot run at all.
    pub const fn learned_positions(self) -> bool {
        match self {
            Self::HuggingFace(model_type) => model_type.learned_positions,
            Self::Family(family) => family.position_key.is_some(),
        }
    }

    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HuggingFace(model_type) => model_type.name,
            Self::Family(family) => family.name,
        }
    }
}

impl ModelSource {
    /// The Hugging Face config of this model: the pasted one, or the catalog's. `None` for our own families.
    pub fn config(&self) -> Option<Map<String, Value>> {
        match self {
            Self::HuggingFace(config) => Some(config.clone()),
            Self::Catalog(id) => serde_json::from_str(catalog::model(id)?.config).ok(),
            Self::Family { .. } => None,
        }
    }

    /// What it lets the rest of the scenario say; `None` when it is not supported.
    pub(super) fn traits(&self) -> Option<Traits> {
        match self {
            Self::HuggingFace(config) => {
                supported::model_type(config.get("model_type")?.as_str()?).map(Traits::HuggingFace)
            }
            Self::Catalog(id) => supported::model_type(catalog::model(id)?.model_type).map(Traits::HuggingFace),
            Self::Family { name, .. } => supported::family(name).map(Traits::Family),
        }
    }

    /// The longest sequence the model was made for, in tokens; `None` where it has no sequence.
    pub fn positions(&self) -> Option<u64> {
        match self.traits()? {
            Traits::HuggingFace(model_type) => {
                let given = |config: &Map<String, Value>| {
                    model_type.position_keys.iter().find_map(|key| config.get(*key)?.as_u64())
                };
                let given = match self {
                    Self::HuggingFace(config) => given(config),
                    other => given(&other.config()?),
                };
                Some(given.unwrap_or(model_type.positions))
            }
            Traits::Family(family) => {
                let Self::Family { keys, .. } = self else { return None };
                keys.get(family.position_key?)?.as_u64()
            }
        }
    }
}

/// Reads `[model]`.
pub fn read(table: &Table<'_>) -> Result<(Model, Traits)> {
    let given: Vec<&str> =
        ["catalog", "hf", "family"].into_iter().filter(|key| table.optional(key).is_some()).collect();
    let (source, traits) = match given.as_slice() {
        ["catalog"] => catalog_model(table)?,
        ["hf"] => hugging_face(table)?,
        ["family"] => own_family(table)?,
        [] => {
            table.only(&keys::names("model"))?;
            return Err(Error::new(
                "model",
                "no model is named",
                "give exactly one of catalog = \"llama-3.2-1b\", hf = { the content of a config.json }, family = \"mlp\"",
            ));
        }
        several => {
            return Err(Error::new(
                "model",
                format!("{} are given together", several.join(" and ")),
                "give exactly one of catalog, hf, family",
            ));
        }
    };
    let task = match table.word::<Task>("task")? {
        Some(task) if traits.tasks().contains(&task) => task,
        Some(task) => {
            let tasks: Vec<&str> = traits.tasks().iter().map(|t| t.as_str()).collect();
            return Err(Error::new(
                table.at("task"),
                format!("{task} is not estimated for {} yet", traits.name()),
                format!("use {}, or leave task out", tasks.join(" or ")),
            ));
        }
        None => default_task(traits),
    };
    Ok((Model { source, task }, traits))
}

/// The first task of the model's list.
pub fn default_task(traits: Traits) -> Task {
    traits.tasks().first().copied().unwrap_or(Task::CausalLm)
}

fn catalog_model(table: &Table<'_>) -> Result<(ModelSource, Traits)> {
    table.only(&keys::names("model"))?;
    let id = table.text("catalog", "llama-3.2-1b")?.unwrap_or_default();
    let Some(model) = catalog::model(id) else {
        let ids: Vec<&str> = catalog::models().iter().map(|m| m.id).collect();
        return Err(Error::new(
            table.at("catalog"),
            format!("no model {} in the catalog", quoted(id)),
            nearest_hint(id, &ids, "paste its config.json as model.hf, or see the list of models"),
        ));
    };
    let Some(model_type) = supported::model_type(model.model_type) else {
        return Err(unsupported_type(table.at("catalog"), model.model_type));
    };
    Ok((ModelSource::Catalog(id.to_owned()), Traits::HuggingFace(model_type)))
}

/// "the nearest are ...", or what else to do when none is near.
pub fn nearest_hint(id: &str, ids: &[&str], otherwise: &str) -> String {
    match nearest_ids(id, ids).as_slice() {
        [] => otherwise.to_owned(),
        [one] => format!("did you mean {one}?"),
        several => format!("the nearest are {}", several.join(", ")),
    }
}

fn hugging_face(table: &Table<'_>) -> Result<(ModelSource, Traits)> {
    table.only(&keys::names("model"))?;
    let path = table.at("hf");
    let config = match table.get("hf") {
        Some(Value::Object(config)) => config.clone(),
        // The text of the file itself: how a config with nulls, which TOML does not have, is written there.
        Some(Value::String(json)) => match text::json(json) {
            Ok(Value::Object(config)) => config,
            Ok(other) => {
                return Err(Error::new(path, format!("expected a config.json, found {}", found(&other)), PASTE));
            }
            Err(error) => return Err(Error::new(path, error.problem, PASTE)),
        },
        Some(other) => return Err(Error::new(path, format!("expected a table, found {}", found(other)), PASTE)),
        None => Map::new(),
    };
    let length = Value::Object(config.clone()).to_string().len();
    if length > limits::CONFIG {
        return Err(Error::new(
            path,
            format!("the config is {length} bytes long, more than {}", limits::CONFIG),
            "take out long lists that do not bear on memory, such as id2label",
        ));
    }
    let name = match config.get("model_type") {
        Some(Value::String(name)) => name,
        Some(other) => {
            let problem = format!("expected text, found {}", found(other));
            return Err(Error::new(format!("{path}.model_type"), problem, PASTE));
        }
        None => return Err(Error::new(format!("{path}.model_type"), "it is missing", PASTE)),
    };
    let Some(model_type) = supported::model_type(name) else {
        return Err(unsupported_type(format!("{path}.model_type"), name));
    };
    Ok((ModelSource::HuggingFace(config), Traits::HuggingFace(model_type)))
}

const PASTE: &str = "paste the whole content of the model's config.json";

fn unsupported_type(key: String, name: &str) -> Error {
    let types: Vec<&str> = MODEL_TYPES.iter().map(|m| m.name).collect();
    Error::new(
        key,
        format!("model_type {} is not supported yet", quoted(name)),
        format!("supported: {}; families of our own: {}", types.join(", "), family_names().join(", ")),
    )
}

fn family_names() -> Vec<&'static str> {
    FAMILIES.iter().map(|f| f.name).collect()
}

fn own_family(table: &Table<'_>) -> Result<(ModelSource, Traits)> {
    let name = table.text("family", "mlp")?.unwrap_or_default();
    let Some(family) = supported::family(name) else {
        let near = nearest(name, &family_names()).map(|n| format!("did you mean {n:?}; ")).unwrap_or_default();
        let hint = if supported::model_type(name).is_some() {
            format!("{name} is a Hugging Face model_type: paste its config.json as model.hf, or name a catalog model")
        } else {
            format!("{near}supported: {}", family_names().join(", "))
        };
        return Err(Error::new(table.at("family"), format!("family {} is not supported", quoted(name)), hint));
    };
    let mut known = vec!["family", "task"];
    known.extend(family.keys.iter().map(|k| k.name));
    table.only(&known)?;
    let mut keys = Map::new();
    for key in family.keys {
        let value = match key.kind {
            FamilyKeyKind::Count { default, most } => table.count(key.name, most)?.unwrap_or(default).into(),
            FamilyKeyKind::Fraction { default } => table.fraction(key.name)?.unwrap_or(default).into(),
            FamilyKeyKind::Flag { default } => table.flag(key.name)?.unwrap_or(default).into(),
        };
        keys.insert(key.name.to_owned(), value);
    }
    Ok((ModelSource::Family { name: name.to_owned(), keys }, Traits::Family(family)))
}
