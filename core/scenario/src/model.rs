//! `[model]`: which architecture, and what is trained on it.

use plimsoll_catalog as catalog;
use plimsoll_catalog::families::{self, FamilyKey, FamilyKeyKind};
use plimsoll_catalog::search::Named;
use plimsoll_ground::{Error, Result, Vocabulary, nearest, nearest_ids, quoted};
use serde_json::{Map, Value};

use super::given::{Given, count, flag, found, fraction, one_of, text as text_of};
use super::lever::{Entry, Group, Kind, Lever, Near, Row, Table};
use super::measured::Scope;
use super::{Family, HullModel, Task, hull, input, limits, text};

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

/// Reads `[model]`.
pub fn read(given: &Given<'_>, scope: Scope) -> Result<Model> {
    let sources = ["catalog", "hf", "family", "hull"];
    let named: Vec<&str> = sources.into_iter().filter(|key| given.optional(key).is_some()).collect();
    let (source, family) = match named.as_slice() {
        ["catalog"] => catalog_model(given, scope)?,
        ["hf"] => hugging_face(given, scope)?,
        ["family"] => own_family(given)?,
        ["hull"] => (ModelSource::Hull(hull::read(given)?), &families::HULL),
        [] => {
            given.only(NAMES)?;
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
                "give exactly one of catalog, hf, family, hull",
            ));
        }
    };
    let tasks: Vec<(&str, Task)> = Task::ALL.iter().map(|task| (task.as_str(), *task)).collect();
    let task = match given.get("task").map(|value| one_of(value, &given.at("task"), &tasks)).transpose()? {
        None => default_task(family),
        // PyTorch may well run it: what the model takes then follows from the task.
        Some(task) if scope == Scope::Measured && may_be_measured(family, task) => task,
        Some(task) if family.tasks.contains(&task) => task,
        Some(task) => {
            let tasks: Vec<&str> = family.tasks.iter().map(|t| t.as_str()).collect();
            return Err(Error::new(
                given.at("task"),
                format!("{task} is not estimated for {} yet", family.name),
                format!("use {}, or leave task out", tasks.join(" or ")),
            ));
        }
    };
    Ok(Model { source, task })
}

/// What may stand in `[model]`, but for a family's own keys.
const NAMES: &[&str] = &["catalog", "hf", "family", "task"];

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

/// Whether a task of a Hugging Face model is one the engine knows nothing about.
fn may_be_measured(family: &Family, task: Task) -> bool {
    !family.is_own() && (family.is_unlisted() || !family.tasks.contains(&task))
}

/// The first task of the row; the guessed one of a model nobody lists.
pub fn default_task(family: &Family) -> Task {
    family.tasks.first().copied().unwrap_or(Task::CausalLm)
}

fn catalog_model(given: &Given<'_>, scope: Scope) -> Result<(ModelSource, &'static Family)> {
    let at = given.at("catalog");
    let id = given.get("catalog").map_or(Ok(DEFAULT_MODEL), |value| text_of(value, &at, DEFAULT_MODEL))?;
    if let Some(recorded) = catalog::recorded_model(id) {
        return Ok((ModelSource::Hull(hull::with_axes(HullModel::shipped(recorded), given)?), &families::HULL));
    }
    given.only(NAMES)?;
    let model = catalogued(id, &at)?;
    known_or_measured(ModelSource::Catalog(id.to_owned()), scope)
        .ok_or_else(|| unsupported_type(at, model.model_type, &Map::new()))
}

/// The row of the catalog.
fn catalogued(id: &str, at: &str) -> Result<&'static catalog::Model> {
    catalog::model(id).ok_or_else(|| {
        let found: Vec<&str> = catalog::search::find_named(id).into_iter().map(Named::id).collect();
        let ids: Vec<&str> = catalog::search::find_named("").into_iter().map(Named::id).collect();
        let otherwise = "paste its config.json as model.hf, or record it with `plimsoll trace`";
        let hint = match (found.as_slice(), nearest_hint(id, &found, &ids, otherwise)) {
            ([], hint) if hint != otherwise => format!("{hint}; or {otherwise}"),
            (_, hint) => hint,
        };
        Error::new(at, format!("no model {} in the catalog", quoted(id)), hint)
    })
}

/// "the nearest are ...", or what else to do when none is near: what a search found, else what is spelt alike.
pub fn nearest_hint(id: &str, found: &[&str], ids: &[&str], otherwise: &str) -> String {
    const MOST: usize = 3;
    let near = match found {
        [] => nearest_ids(id, ids),
        found => found.iter().copied().take(MOST).collect(),
    };
    match near.as_slice() {
        [] => otherwise.to_owned(),
        [one] => format!("did you mean {one}?"),
        several => format!("the nearest are {}", several.join(", ")),
    }
}

fn hugging_face(given: &Given<'_>, scope: Scope) -> Result<(ModelSource, &'static Family)> {
    given.only(NAMES)?;
    let path = given.at("hf");
    let mut config = match given.get("hf") {
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
    let name = typed(&config, &path)?.to_owned();
    let unsupported = unsupported_type(format!("{path}.model_type"), &name, &config);
    known_or_measured(ModelSource::HuggingFace(config), scope).ok_or(unsupported)
}

/// The `model_type` of a config.
fn typed<'c>(config: &'c Map<String, Value>, path: &str) -> Result<&'c str> {
    let length = serde_json::to_string(config).map_or(usize::MAX, |text| text.len());
    if length > limits::CONFIG {
        return Err(Error::new(
            path,
            format!("the config is {length} bytes long, more than {}", limits::CONFIG),
            "take out long lists that do not bear on memory",
        ));
    }
    let at = format!("{path}.model_type");
    match config.get("model_type") {
        Some(Value::String(name)) => Ok(name),
        Some(other) => Err(Error::new(at, format!("expected text, found {}", found(other)), PASTE)),
        None => Err(Error::new(at, "it is missing", PASTE)),
    }
}

/// Puts the number of the classes in the place of their names: a classifier of ImageNet carries 60 KB of them.
fn count_labels(config: &mut Map<String, Value>) {
    let named = config.get("id2label").and_then(Value::as_object).map(|names| names.len() as u64);
    let Some(named) = named else { return };
    config.shift_remove("id2label");
    config.shift_remove("label2id");
    config.entry("num_labels").or_insert(named.into());
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

/// What to do about a type that no family has: its text part where that is known, else the nearest of its name; a recording
/// is of the model itself in any case.
fn unsupported_type(key: String, name: &str, config: &Map<String, Value>) -> Error {
    let record = "`plimsoll trace` records the model itself, without a card";
    let experts = |config: &Map<String, Value>| config.keys().any(|key| key.contains("expert"));
    let text = config.get("text_config").and_then(Value::as_object);
    let of_text = text.and_then(|text| text.get("model_type")).and_then(Value::as_str);
    let near = families::near(of_text.unwrap_or(name), experts(text.unwrap_or(config)));
    let hint = match (of_text.filter(|known| families::of_type(known).is_some()), near.first()) {
        (Some(known), _) => {
            format!("its text part is known: give its text_config, whose model_type is {known}; {record}")
        }
        (None, Some(near)) => format!(
            "the nearest that is known is {}: with that as its model_type it is estimated as one, as far as the two are alike; \
             {record}",
            near.name
        ),
        (None, None) => format!("{record}; docs/models.md lists what is known"),
    };
    Error::new(key, format!("model_type {} is not supported yet", quoted(name)), hint)
}

fn family_names() -> Vec<&'static str> {
    families::OWN.iter().map(|f| f.name).collect()
}

fn own_family(given: &Given<'_>) -> Result<(ModelSource, &'static Family)> {
    let at = given.at("family");
    let name = given.get("family").map_or(Ok("mlp"), |value| text_of(value, &at, "mlp"))?;
    let family = named_family(name, &at)?;
    let mut known = vec!["family", "task"];
    known.extend(family.keys().iter().map(|key| key.name));
    given.only(&known)?;
    let mut keys = defaults(family);
    for key in family.keys() {
        if let Some(value) = given.get(key.name) {
            keys.insert(key.name.to_owned(), own_key(key, value, &given.at(key.name))?);
        }
    }
    Ok((ModelSource::Family { name: name.to_owned(), keys }, family))
}

/// The row of a family of our own.
fn named_family(name: &str, at: &str) -> Result<&'static Family> {
    families::own(name).ok_or_else(|| {
        let near = nearest(name, &family_names()).map(|n| format!("did you mean {n:?}; ")).unwrap_or_default();
        let hint = if families::of_type(name).is_some() {
            format!("{name} is a Hugging Face model_type: paste its config.json as model.hf, or name a catalog model")
        } else {
            format!("{near}supported: {}", family_names().join(", "))
        };
        Error::new(at, format!("family {} is not supported", quoted(name)), hint)
    })
}

/// Reads a key of a family.
fn own_key(key: &FamilyKey, value: &Value, at: &str) -> Result<Value> {
    Ok(match key.kind {
        FamilyKeyKind::Count { most, .. } => count(value, at, most)?.into(),
        FamilyKeyKind::Fraction { .. } => fraction(value, at)?.into(),
        FamilyKeyKind::Flag { .. } => flag(value, at)?.into(),
        FamilyKeyKind::Word { words, .. } => {
            let words: Vec<(&str, &str)> = words.iter().map(|word| (*word, *word)).collect();
            one_of(value, at, &words)?.into()
        }
    })
}
