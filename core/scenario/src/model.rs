//! `[model]`: which architecture, and what is trained on it.

use plimsoll_catalog as catalog;
use plimsoll_ground::{Error, Result};
use plimsoll_ground::{nearest, nearest_ids, quoted};
use serde_json::{Map, Value};

use super::measured::Scope;
use super::supported::{self, FAMILIES, Family, FamilyKeyKind, MODEL_TYPES, ModelType};
use super::table::{Table, found};
use super::{Inputs, Model, ModelSource, Task, input, keys, limits, text};

/// What a model lets the rest of the scenario say: the row of [`supported`] it belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Traits {
    /// A Hugging Face architecture.
    HuggingFace(&'static ModelType),
    /// A family of our own.
    Family(&'static Family),
    /// A Hugging Face model that the engine does not estimate, with what is most likely trained on it.
    Measured(Task),
}

impl Traits {
    /// What can be trained on it; the first is the default.
    pub const fn tasks(self) -> &'static [Task] {
        match self {
            Self::HuggingFace(model_type) => model_type.tasks,
            Self::Family(family) => family.tasks,
            Self::Measured(_) => Task::ALL,
        }
    }

    /// What one sample of its input is.
    pub const fn inputs(self) -> Inputs {
        match self {
            Self::HuggingFace(model_type) => model_type.inputs,
            Self::Family(family) => family.inputs,
            Self::Measured(task) => Inputs::of(task),
        }
    }

    /// Whether it may take inputs that [`Traits::inputs`] does not tell of.
    pub const fn takes_anything(self) -> bool {
        matches!(self, Self::Measured(_))
    }

    /// Whether it takes an attention mask.
    pub const fn has_mask(self) -> bool {
        match self {
            Self::HuggingFace(model_type) => model_type.has_mask,
            Self::Family(family) => family.has_mask,
            Self::Measured(_) => true,
        }
    }

    /// Whether a sequence longer than [`ModelSource::positions`] cannot run at all.
    pub const fn learned_positions(self) -> bool {
        match self {
            Self::HuggingFace(model_type) => model_type.learned_positions,
            Self::Family(family) => family.position_key.is_some(),
            Self::Measured(_) => false,
        }
    }

    /// The config's keys of the longest sequence, and that sequence when none of them is there.
    pub const fn position_keys(self) -> (&'static [&'static str], Option<u64>) {
        match self {
            Self::HuggingFace(model_type) if model_type.position_keys.is_empty() => (&[], None),
            Self::HuggingFace(model_type) => (model_type.position_keys, Some(model_type.positions)),
            Self::Family(_) => (&[], None),
            // CLIP's and Whisper's config classes have these keys and defaults.
            Self::Measured(Task::Contrastive) => (&["text_config.max_position_embeddings"], Some(77)),
            Self::Measured(Task::SpeechSeq2Seq) => (&["max_target_positions"], Some(448)),
            Self::Measured(_) => (&["max_position_embeddings", "n_positions"], None),
        }
    }

    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HuggingFace(model_type) => model_type.name,
            Self::Family(family) => family.name,
            Self::Measured(_) => "this model",
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

    /// What it lets the rest of the scenario say, when the engine estimates it.
    pub(super) fn estimated_traits(&self) -> Option<Traits> {
        match self {
            Self::Family { name, .. } => supported::family(name).map(Traits::Family),
            _ => supported::model_type(&self.model_type()?).or_else(|| self.stand_in()).map(Traits::HuggingFace),
        }
    }

    /// The type that stands in for this model's own in the estimate, when its own is not one of those listed.
    pub fn stand_in(&self) -> Option<&'static ModelType> {
        match self {
            Self::HuggingFace(config) => supported::stand_in(config),
            Self::Catalog(_) | Self::Family { .. } => None,
        }
    }

    /// What it lets the rest of the scenario say, whether it is estimated or only measured.
    pub(super) fn traits(&self) -> Traits {
        self.estimated_traits().or_else(|| self.measured_traits()).unwrap_or(Traits::Measured(Task::CausalLm))
    }

    /// [`ModelSource::traits`] when this task is trained on it: of a task the engine knows nothing about follows what the
    /// model takes.
    pub(super) fn traits_for(&self, task: Task) -> Traits {
        let traits = self.traits();
        if may_be_measured(self, traits, task) { Traits::Measured(task) } else { traits }
    }

    /// The longest sequence the model was made for, in tokens; `None` where it has no sequence or nothing says.
    pub fn positions(&self) -> Option<u64> {
        input::positions(self, self.traits())
    }
}

/// Reads `[model]`.
pub fn read(table: &Table<'_>, scope: Scope) -> Result<(Model, Traits)> {
    let given: Vec<&str> =
        ["catalog", "hf", "family"].into_iter().filter(|key| table.optional(key).is_some()).collect();
    let (source, traits) = match given.as_slice() {
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
        Some(task) if scope == Scope::Measured && may_be_measured(&source, traits, task) => {
            let traits = source.traits_for(task);
            return Ok((Model { source, task }, traits));
        }
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

/// Whether a task of a Hugging Face model is one the engine knows nothing about.
fn may_be_measured(source: &ModelSource, traits: Traits, task: Task) -> bool {
    let listed = matches!(traits, Traits::HuggingFace(_)) && traits.tasks().contains(&task);
    !listed && !matches!(source, ModelSource::Family { .. })
}

/// The first task of the model's list; the guessed one of a model nobody lists.
pub fn default_task(traits: Traits) -> Task {
    if let Traits::Measured(task) = traits {
        return task;
    }
    traits.tasks().first().copied().unwrap_or(Task::CausalLm)
}

fn catalog_model(table: &Table<'_>, scope: Scope) -> Result<(ModelSource, Traits)> {
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

fn hugging_face(table: &Table<'_>, scope: Scope) -> Result<(ModelSource, Traits)> {
    table.only(&keys::names("model"))?;
    let path = table.at("hf");
    let mut config = match table.get("hf") {
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
    let length = |config: &Map<String, Value>| Value::Object(config.clone()).to_string().len();
    if length(&config) > limits::CONFIG {
        count_labels(&mut config);
    }
    let length = length(&config);
    if length > limits::CONFIG {
        return Err(Error::new(
            path,
            format!("the config is {length} bytes long, more than {}", limits::CONFIG),
            "take out long lists that do not bear on memory",
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

/// Puts the number of the classes in the place of their names: a classifier of ImageNet carries 60 KB of them.
fn count_labels(config: &mut Map<String, Value>) {
    let named = config.get("id2label").and_then(Value::as_object).map(|names| names.len() as u64);
    let Some(named) = named else { return };
    config.shift_remove("id2label");
    config.shift_remove("label2id");
    config.entry("num_labels").or_insert(named.into());
}

/// A model with its traits, when the scope lets the scenario name it.
fn known_or_measured(source: ModelSource, scope: Scope) -> Option<(ModelSource, Traits)> {
    let traits = match scope {
        Scope::Estimated => source.estimated_traits()?,
        Scope::Measured => source.traits(),
    };
    Some((source, traits))
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
            FamilyKeyKind::Word { default, words } => table.one_of(key.name, words)?.unwrap_or(default).into(),
        };
        keys.insert(key.name.to_owned(), value);
    }
    Ok((ModelSource::Family { name: name.to_owned(), keys }, Traits::Family(family)))
}
