//! `[model]`: which architecture, and what is trained on it.

mod read;

use plimsoll_catalog as catalog;
use plimsoll_catalog::families;
use plimsoll_ground::{Error, Result, Vocabulary};
use serde_json::{Map, Value};

pub use read::{nearest_hint, read};

use self::read::{catalogued, may_be_measured, named_family, own_key, typed};
use super::given::{one_of, text as text_of};
use super::lever::{Entry, Group, Kind, Lever, Near, Row, Table};
use super::{Family, HullModel, Task, input};

/// The model when a link names none.
pub const DEFAULT_MODEL: &str = "llama-3.2-1b";

/// `[model]`: where the architecture comes from, and what is trained on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Exactly one of the keys `catalog`, `hf`, `family`, `hull`.
    pub source: ModelSource,
    /// `task`.
    pub task: Task,
}

/// Where the architecture's sizes come from.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelSource {
    /// `catalog = "llama-3.2-1b"`: an id in `data/models`.
    Catalog(String),
    /// `hf = {...}`: the content of a Hugging Face `config.json`, as pasted; `model_type` is always a string in it.
    HuggingFace(Map<String, Value>),
    /// `family = "mlp"` and the family's own keys (`d_in`, `hidden`, ...) beside it.
    Family {
        /// `mlp`, `nanogpt`, `nbeats`, ...
        name: String,
        /// The family's own keys, all of them: one that was not given has its default.
        keys: Map<String, Value>,
    },
    /// `hull = "my.hull"`: a model that somebody recorded, its axes (`S`, ...) beside it.
    Hull(HullModel),
}

/// `[model]`. It is read as a whole, since all the rest goes by it; `hf` is no lever, and a family's keys are its row's.
pub static MODEL: Table = Table {
    path: "model",
    about: "`[model]`: where the architecture comes from, and what is trained on it. Exactly one of `catalog`, `hf`, `family` and `hull`; \
            `hf` is the content of a Hugging Face `config.json`, as it comes; beside `family` stand that family's own keys, beside `hull`, a recording ([hulls](hull.md)), its axes.",
    entries: &[
        Entry::Lever(&Lever {
            path: at::catalog,
            about: "An id in `data/models` or `data/hulls.toml`.",
            row: Row { link: "model", label: "Model", help: "A model of the catalog", ..named() },
            get: |scenario| match &scenario.model.source {
                ModelSource::Catalog(id) => Some(id.as_str().into()),
                _ => None,
            },
            set: |scenario, lever, value| {
                scenario.model.source = ModelSource::called(text_of(value, lever.path, DEFAULT_MODEL)?);
                Ok(())
            },
            valid: |_, _| Ok(()),
            constant: || None,
            follows: None,
        }),
        Entry::Lever(&Lever {
            path: at::family,
            about: "A family of our own.",
            row: Row { link: "family", label: "Family", help: "A family of our own", ..named() },
            get: |scenario| match &scenario.model.source {
                ModelSource::Family { name, .. } => Some(name.as_str().into()),
                _ => None,
            },
            set: |scenario, lever, value| {
                let name = text_of(value, lever.path, "mlp")?.to_owned();
                let keys = families::own(&name).map(defaults).unwrap_or_default();
                scenario.model.source = ModelSource::Family { name, keys };
                Ok(())
            },
            valid: |_, _| Ok(()),
            constant: || None,
            follows: None,
        }),
        Entry::Lever(&Lever {
            path: at::task,
            about: "What is trained on it: which head and which loss.",
            row: Row {
                link: "task",
                kind: Kind::Words(<Task as Vocabulary>::WORDS),
                label: "Task",
                help: "What is trained",
                otherwise: "the first that the model is made for",
                near: Near::unlike(2.0),
                ..named()
            },
            get: |scenario| Some(scenario.model.task.as_str().into()),
            set: |scenario, lever, value| {
                let tasks: Vec<(&str, Task)> = Task::ALL.iter().map(|task| (task.as_str(), *task)).collect();
                scenario.model.task = one_of(value, lever.path, &tasks)?;
                Ok(())
            },
            valid: |_, _| Ok(()),
            constant: || None,
            follows: Some(|scenario| Some(default_task(scenario.model.source.family()).as_str().into())),
        }),
    ],
    is_open: |_| true,
    open: |_| {},
    close: |_| {},
};

/// Where each of these levers stands.
#[allow(non_upper_case_globals, reason = "they are called as the keys are")]
pub mod at {
    /// An id in `data/models`.
    pub const catalog: &str = "model.catalog";
    /// A family of our own.
    pub const family: &str = "model.family";
    /// What is trained on it.
    pub const task: &str = "model.task";
    /// A recording, which is no lever.
    pub const hull: &str = "model.hull";
    /// A pasted `config.json`, which is no lever.
    pub const hf: &str = "model.hf";
}

/// A row that names a model.
const fn named() -> Row {
    Row { otherwise: "none: one of catalog, hf, family and hull is given", group: Group::Model, ..Row::of(Kind::Id) }
}

/// The keys of a family that says none.
fn defaults(family: &Family) -> Map<String, Value> {
    family.keys().iter().map(|key| (key.name.to_owned(), key.kind.default())).collect()
}

impl Model {
    /// `[model]` as it is written.
    pub(super) fn table(&self) -> Map<String, Value> {
        let mut table = Map::new();
        let mut own_keys = Map::new();
        match &self.source {
            ModelSource::Catalog(id) => table.insert("catalog".to_owned(), id.as_str().into()),
            ModelSource::HuggingFace(config) => table.insert("hf".to_owned(), Value::Object(config.clone())),
            ModelSource::Family { name, keys } => {
                own_keys.clone_from(keys);
                table.insert("family".to_owned(), name.as_str().into())
            }
            // What it is trained on is its own.
            ModelSource::Hull(hull) => return hull.table(),
        };
        table.insert("task".to_owned(), self.task.as_str().into());
        table.extend(own_keys);
        table
    }
}

impl ModelSource {
    /// The model of the catalog with this id: a recording, where it exists as one alone.
    pub fn called(id: &str) -> Self {
        match catalog::recorded_model(id) {
            Some(recorded) => Self::Hull(HullModel::shipped(recorded)),
            None => Self::Catalog(id.to_owned()),
        }
    }

    /// The Hugging Face config of this model: the pasted one, or the catalog's. `None` for our own families.
    pub fn config(&self) -> Option<Map<String, Value>> {
        match self {
            Self::Family { .. } | Self::Hull(_) => None,
            other => other.keys().cloned(),
        }
    }

    /// What describes it: the pasted config, the catalog's, or a family's own keys.
    pub fn keys(&self) -> Option<&Map<String, Value>> {
        match self {
            Self::HuggingFace(config) => Some(config),
            Self::Catalog(id) => catalog::config(id),
            Self::Family { keys, .. } => Some(keys),
            Self::Hull(hull) => Some(hull.axes()),
        }
    }

    /// The row the engine estimates it by: its own, or that of the type that stands in for it.
    pub fn estimated_family(&self) -> Option<&'static Family> {
        match self {
            Self::Family { name, .. } => families::own(name),
            Self::Hull(_) => Some(&families::HULL),
            _ => families::of_type(self.model_type()?).or_else(|| self.stand_in()),
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
        let unlisted = self.model_type().is_some_and(|name| families::of_type(name).is_none());
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
        let part = |names: &[&str]| names.iter().find_map(|name| number(input::nested(keys, name)?));
        let parts = self.family().layers;
        if parts.is_empty() { None } else { parts.iter().map(|names| part(names)).sum() }
    }
}

/// Gives a family of our own the keys that were not said, in the order of its row.
pub fn settle(model: &mut Model) {
    if let ModelSource::Family { name, keys } = &mut model.source
        && let Some(family) = families::own(name)
    {
        let given = std::mem::replace(keys, defaults(family));
        keys.extend(given);
    }
}

/// Whether there is such a model.
///
/// # Errors
/// An id or a family that is in no catalog, a config without a type, a key of a family beyond its bounds.
pub fn check(model: &Model) -> Result<()> {
    match &model.source {
        ModelSource::Catalog(id) => catalogued(id, at::catalog).map(drop),
        ModelSource::HuggingFace(config) => typed(config, at::hf).map(drop),
        // Its file was checked when it was opened.
        ModelSource::Hull(_) => Ok(()),
        ModelSource::Family { name, keys } => {
            let family = named_family(name, at::family)?;
            keys.iter().try_for_each(|(name, value)| {
                let at = format!("model.{name}");
                match family.keys().iter().find(|key| key.name == name) {
                    Some(key) => own_key(key, value, &at).map(drop),
                    None => Err(Error::new(at, "unknown key", format!("{} has no such key", family.name))),
                }
            })
        }
    }
}

/// The first task of the row; the guessed one of a model nobody lists.
pub fn default_task(family: &Family) -> Task {
    family.tasks.first().copied().unwrap_or(Task::CausalLm)
}
