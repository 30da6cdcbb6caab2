//! What a scenario says beside the defaults: what sets one run apart from another.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::model::{DEFAULT_MODEL, MODEL, Model, ModelSource};
use super::{Kind, Lever, Scenario, Table, Task, levers};

/// The levers of a scenario that are not at the table's own defaults, by their names in a link; the model is not among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Levers(BTreeMap<String, Value>);

/// A scenario where nothing is said: it lacks the tables that a scenario can be without.
static SILENT: LazyLock<Scenario> = LazyLock::new(|| {
    Scenario::constant(Model { source: ModelSource::Catalog(DEFAULT_MODEL.to_owned()), task: Task::CausalLm })
});

/// Of a lever in such a table, the first one there: by its being kept one knows that the table is there at all.
fn opener(lever: &Lever) -> Option<&'static Lever> {
    let (table, _) = lever.path.rsplit_once('.')?;
    Table::at(table).filter(|table| !(table.is_open)(&SILENT))?.levers().first().copied()
}

/// Every lever but the model's.
fn recipe() -> impl Iterator<Item = &'static Lever> {
    levers().filter(|lever| lever.section() != MODEL.path)
}

impl Levers {
    /// Those of a scenario.
    pub fn of(scenario: &Scenario) -> Self {
        let opens = |lever: &Lever| opener(lever).is_some_and(|first| first == lever);
        let said = |lever: &Lever| {
            lever.get(scenario).filter(|value| lever.constant().as_ref() != Some(value) || opens(lever))
        };
        Self(recipe().filter_map(|lever| Some((lever.row.link.to_owned(), said(lever)?))).collect())
    }

    /// The value of a lever; `None` where it has none.
    pub fn get(&self, lever: &Lever) -> Option<Value> {
        let absent = || opener(lever).is_some_and(|first| !self.0.contains_key(first.row.link));
        self.0.get(lever.row.link).cloned().or_else(|| if absent() { None } else { lever.constant() })
    }

    /// Notes a value.
    pub fn put(&mut self, lever: &Lever, value: Value) {
        self.0.insert(lever.row.link.to_owned(), value);
    }

    /// How far apart they set two runs.
    pub fn distance(&self, other: &Self) -> f64 {
        recipe().map(|lever| lever.row.near.between(self.get(lever).as_ref(), other.get(lever).as_ref())).sum()
    }

    /// The levers in which two runs differ, in the table's order.
    pub fn unlike(&self, other: &Self) -> Vec<&'static Lever> {
        recipe().filter(|lever| self.get(lever) != other.get(lever)).collect()
    }

    /// In words, a clause each, as far as they bear on what a run takes; those at the paths `but` are told otherwise.
    pub fn told(&self, but: &[&str]) -> Vec<String> {
        let tells = |lever: &&'static Lever| lever.row.near.counts() && !but.contains(&lever.path);
        recipe().filter(tells).filter_map(|lever| Some(clause(lever, self.0.get(lever.row.link)?))).collect()
    }
}

/// `gradient clipping`, `attention: eager`, `label smoothing 0.1`.
fn clause(lever: &Lever, value: &Value) -> String {
    let mut letters = lever.row.label.chars();
    // A name such as DoRA keeps its capitals.
    let name = lever.row.label.chars().filter(|c| c.is_uppercase()).count() > 1;
    let label = match letters.next() {
        Some(first) if !name => first.to_lowercase().chain(letters).collect(),
        _ => lever.row.label.to_owned(),
    };
    match (lever.row.kind, value) {
        (_, Value::Bool(true)) => label,
        (_, Value::Bool(false)) => format!("no {label}"),
        (Kind::Words(words), Value::String(key)) => {
            let word = words.iter().find(|word| word.key == key).map_or(key.as_str(), |word| word.label);
            format!("{label}: {word}")
        }
        (_, Value::String(text)) => format!("{label} {text}"),
        (_, Value::Array(items)) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            format!("{label} {}", items.join(", "))
        }
        (_, other) => format!("{label} {other}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Change, lever};
    use super::*;

    fn levers_of(value: Value) -> Levers {
        Levers::of(&Scenario::from_value(&value).unwrap())
    }

    #[test]
    fn only_what_is_not_default_is_kept() {
        let said = levers_of(json!({
            "model": { "catalog": "gpt2" }, "input": { "batch": 4 },
            "training": { "loss_impl": "chunked", "lora": {}, "clip_grad_norm": false, "ema": true },
        }));
        let text = serde_json::to_string(&said).unwrap();
        assert_eq!(text, r#"{"batch":4,"clip":false,"ema":true,"lora":8,"loss":"chunked","seq":1024}"#);
        assert_eq!(serde_json::from_str::<Levers>(&text).unwrap(), said);
        let value = |path: &str| said.get(lever(path).unwrap());
        assert_eq!(
            (value("training.lora.rank"), value("training.precision")),
            (Some(json!(8)), Some(json!("bf16-amp")))
        );
        assert_eq!(
            (
                value("training.lora.dora"),
                levers_of(json!({ "model": { "catalog": "gpt2" } })).get(lever("training.lora.dora").unwrap())
            ),
            (Some(json!(false)), None)
        );
        assert_eq!(
            said.told(&["input.batch", "input.seq", "training.lora.rank"]),
            ["no gradient clipping", "head and loss: in chunks", "moving average of the weights"]
        );
    }

    /// Whatever is changed of a run, it is another run; but where its line is drawn.
    #[test]
    fn one_lever_apart_is_apart() {
        let aside = ["device.memory", "device.load_line", "device.host_memory"];
        for id in ["gpt2", "t5-base", "resnet-50", "mixtral-8x7b-v0.1"] {
            let mut starts = vec![Scenario::of(ModelSource::Catalog(id.to_owned()))];
            starts.extend(Change::Qlora.apply(&starts[0]).ok());
            starts.extend(Change::Mode(crate::Mode::Inference).apply(&starts[0]).ok());
            for start in &starts {
                // Of another mode nothing is compared at all.
                for lever in recipe().filter(|lever| lever.path != "training.mode") {
                    for value in lever.offers(start) {
                        let next = Change::Set(lever, value).apply(start).unwrap();
                        let distance = Levers::of(start).distance(&Levers::of(&next));
                        let expected = lever.get(start) != lever.get(&next) && !aside.contains(&lever.path);
                        assert_eq!(distance > 0.0, expected, "{} of {id}: {distance}", lever.path);
                        assert!(distance.is_finite());
                    }
                }
            }
        }
    }
}
