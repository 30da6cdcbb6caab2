//! `[model]` as it is given: which of its sources, and what is wrong with one that is none.

use plimsoll_catalog as catalog;
use plimsoll_catalog::families::{self, FamilyKey, FamilyKeyKind};
use plimsoll_catalog::search::Named;
use plimsoll_ground::{Error, Result, nearest, nearest_ids, quoted};
use serde_json::{Map, Value};

use super::{DEFAULT_MODEL, Model, ModelSource, default_task, defaults};
use crate::given::{Given, count, flag, found, fraction, one_of, text as text_of};
use crate::measured::Scope;
use crate::{Family, HullModel, Task, hull, limits, text};

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

/// Whether a task of a Hugging Face model is one the engine knows nothing about.
pub(super) fn may_be_measured(family: &Family, task: Task) -> bool {
    !family.is_own() && (family.is_unlisted() || !family.tasks.contains(&task))
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
pub(super) fn catalogued(id: &str, at: &str) -> Result<&'static catalog::Model> {
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
pub(super) fn typed<'c>(config: &'c Map<String, Value>, path: &str) -> Result<&'c str> {
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
pub(super) fn named_family(name: &str, at: &str) -> Result<&'static Family> {
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
pub(super) fn own_key(key: &FamilyKey, value: &Value, at: &str) -> Result<Value> {
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
