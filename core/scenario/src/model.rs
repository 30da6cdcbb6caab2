//! `[model]`: which architecture, and what is trained on it.

use std::borrow::Cow;

use plimsoll_catalog as catalog;
use plimsoll_catalog::families::{self, FamilyKeyKind};
use plimsoll_ground::{Error, Result};
use plimsoll_ground::{nearest, nearest_ids, quoted};
use serde_json::{Map, Value};

use super::measured::Scope;
use super::table::{Table, found};
use super::{Family, Model, ModelSource, Task, input, keys, limits, text};

impl ModelSource {
    /// The Hugging Face config of this model: the pasted one, or the catalog's. `None` for our own families.
    pub fn config(&self) -> Option<Map<String, Value>> {
        match self {
            Self::Family { .. } => None,
            other => other.keys().map(Cow::into_owned),
        }
    }

    /// What describes it: the pasted config, the catalog's, or a family's own keys.
    pub fn keys(&self) -> Option<Cow<'_, Map<String, Value>>> {
        match self {
            Self::HuggingFace(config) => Some(Cow::Borrowed(config)),
            Self::Catalog(id) => serde_json::from_str(catalog::model(id)?.config).ok().map(Cow::Owned),
            Self::Family { keys, .. } => Some(Cow::Borrowed(keys)),
        }
    }

    /// The row the engine estimates it by: its own, or that of the type that stands in for it.
    pub fn estimated_family(&self) -> Option<&'static Family> {
        match self {
            Self::Family { name, .. } => families::own(name),
            _ => families::of_type(&self.model_type()?).or_else(|| self.stand_in()),
        }
    }

    /// The type that stands in for this model's own in the estimate, when its own is not one of those listed: Llama, for a
    /// causal language model whose config names all of a decoder's sizes and no experts. Anything else has no stand-in.
    pub fn stand_in(&self) -> Option<&'static Family> {
        const SIZES: [&str; 5] =
            ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"];
        let Self::HuggingFace(config) = self else { return None };
        let sizes = SIZES.iter().all(|key| config.get(*key).is_some_and(Value::is_u64));
        let experts = config.keys().any(|key| key.contains("expert"));
        let architectures = config.get("architectures").and_then(Value::as_array);
        let causal = architectures
            .is_some_and(|list| list.iter().filter_map(Value::as_str).any(|name| name.ends_with("ForCausalLM")));
        let unlisted = self.model_type().is_some_and(|name| families::of_type(&name).is_none());
        if sizes && causal && unlisted && !experts { families::of_type("llama") } else { None }
    }

    /// The row that says what the rest of the scenario may say, whether the model is estimated or only measured.
    pub fn family(&self) -> &'static Family {
        self.estimated_family().or_else(|| self.measured_family()).unwrap_or_else(|| families::unlisted(Task::CausalLm))
    }

    /// [`ModelSource::family`] when this task is trained on it: of a task the engine knows nothing about follows what the
    /// model takes.
    pub(super) fn family_for(&self, task: Task) -> &'static Family {
        let family = self.family();
        if may_be_measured(family, task) { families::unlisted(task) } else { family }
    }

    /// The longest sequence the model was made for, in tokens; `None` where it has no sequence or nothing says.
    pub fn positions(&self) -> Option<u64> {
        input::positions(self, self.family())
    }

    /// How many layers one forward runs through, encoder and decoder together; `None` where the model does not say.
    pub fn layers(&self) -> Option<u64> {
        let keys = self.keys()?;
        let number = |value: &Value| match value {
            Value::Array(stages) => stages.iter().map(Value::as_u64).sum(),
            one => one.as_u64(),
        };
        let part = |names: &[&str]| names.iter().find_map(|name| number(input::nested(&keys, name)?));
        let parts = self.family().layers;
        if parts.is_empty() { None } else { parts.iter().map(|names| part(names)).sum() }
    }
}

/// Reads `[model]`.
pub fn read(table: &Table<'_>, scope: Scope) -> Result<(Model, &'static Family)> {
    let given: Vec<&str> =
        ["catalog", "hf", "family"].into_iter().filter(|key| table.optional(key).is_some()).collect();
    let (source, family) = match given.as_slice() {
        ["catalog"] => catalog_model(table, scope)?,
        ["hf"] => hugging_face(table, scope)?,
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
        // PyTorch may well run it: what the model takes then follows from the task.
        Some(task) if scope == Scope::Measured && may_be_measured(family, task) => {
            let family = source.family_for(task);
            return Ok((Model { source, task }, family));
        }
        Some(task) if family.tasks.contains(&task) => task,
        Some(task) => {
            let tasks: Vec<&str> = family.tasks.iter().map(|t| t.as_str()).collect();
            return Err(Error::new(
                table.at("task"),
                format!("{task} is not estimated for {} yet", family.name),
                format!("use {}, or leave task out", tasks.join(" or ")),
            ));
        }
        None => default_task(family),
    };
    Ok((Model { source, task }, family))
}

/// Whether a task of a Hugging Face model is one the engine knows nothing about.
fn may_be_measured(family: &Family, task: Task) -> bool {
    !family.is_own() && (family.is_unlisted() || !family.tasks.contains(&task))
}

/// The first task of the row; the guessed one of a model nobody lists.
pub fn default_task(family: &Family) -> Task {
    family.tasks.first().copied().unwrap_or(Task::CausalLm)
}

fn catalog_model(table: &Table<'_>, scope: Scope) -> Result<(ModelSource, &'static Family)> {
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
    known_or_measured(ModelSource::Catalog(id.to_owned()), scope)
        .ok_or_else(|| unsupported_type(table.at("catalog"), model.model_type))
}

/// "the nearest are ...", or what else to do when none is near.
pub fn nearest_hint(id: &str, ids: &[&str], otherwise: &str) -> String {
    match nearest_ids(id, ids).as_slice() {
        [] => otherwise.to_owned(),
        [one] => format!("did you mean {one}?"),
        several => format!("the nearest are {}", several.join(", ")),
    }
}

fn hugging_face(table: &Table<'_>, scope: Scope) -> Result<(ModelSource, &'static Family)> {
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
        Some(Value::String(name)) => name.clone(),
        Some(other) => {
            let problem = format!("expected text, found {}", found(other));
            return Err(Error::new(format!("{path}.model_type"), problem, PASTE));
        }
        None => return Err(Error::new(format!("{path}.model_type"), "it is missing", PASTE)),
    };
    known_or_measured(ModelSource::HuggingFace(config), scope)
        .ok_or_else(|| unsupported_type(format!("{path}.model_type"), &name))
}

/// A model with its family, when the scope lets the scenario name it.
fn known_or_measured(source: ModelSource, scope: Scope) -> Option<(ModelSource, &'static Family)> {
    let family = match scope {
        Scope::Estimated => source.estimated_family()?,
        Scope::Measured => source.family(),
    };
    Some((source, family))
}

const PASTE: &str = "paste the whole content of the model's config.json";

fn unsupported_type(key: String, name: &str) -> Error {
    let types: Vec<&str> = families::TRANSFORMERS.iter().map(|f| f.name).collect();
    Error::new(
        key,
        format!("model_type {} is not supported yet", quoted(name)),
        format!("supported: {}; families of our own: {}", types.join(", "), family_names().join(", ")),
    )
}

fn family_names() -> Vec<&'static str> {
    families::OWN.iter().map(|f| f.name).collect()
}

fn own_family(table: &Table<'_>) -> Result<(ModelSource, &'static Family)> {
    let name = table.text("family", "mlp")?.unwrap_or_default();
    let Some(family) = families::own(name) else {
        let near = nearest(name, &family_names()).map(|n| format!("did you mean {n:?}; ")).unwrap_or_default();
        let hint = if families::of_type(name).is_some() {
            format!("{name} is a Hugging Face model_type: paste its config.json as model.hf, or name a catalog model")
        } else {
            format!("{near}supported: {}", family_names().join(", "))
        };
        return Err(Error::new(table.at("family"), format!("family {} is not supported", quoted(name)), hint));
    };
    let mut known = vec!["family", "task"];
    known.extend(family.keys().iter().map(|k| k.name));
    table.only(&known)?;
    let mut keys = Map::new();
    for key in family.keys() {
        let value = match key.kind {
            FamilyKeyKind::Count { default, most } => table.count(key.name, most)?.unwrap_or(default).into(),
            FamilyKeyKind::Fraction { default } => table.fraction(key.name)?.unwrap_or(default).into(),
            FamilyKeyKind::Flag { default } => table.flag(key.name)?.unwrap_or(default).into(),
            FamilyKeyKind::Word { default, words } => table.one_of(key.name, words)?.unwrap_or(default).into(),
        };
        keys.insert(key.name.to_owned(), value);
    }
    Ok((ModelSource::Family { name: name.to_owned(), keys }, family))
}
