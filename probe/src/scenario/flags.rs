//! The flags: one for each lever of the table, laid over a file or link.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::error::Error as Mistake;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use plimsoll_core::Error;
use plimsoll_core::catalog::families::OWN;
use plimsoll_core::catalog::search;
use plimsoll_core::scenario::{Kind, Lever, at, lever, levers, text};
use serde_json::{Map, Value, json};

use super::{hull, source};
use crate::exit::Failure;

/// What the flags were given. Numbers and switches are taken as text: what is wrong with one is said once, by the scenario's
/// own reading.
#[derive(Debug, Default)]
pub struct Flags {
    model: Option<String>,
    hf_config: Option<PathBuf>,
    family: Option<String>,
    hull: Option<PathBuf>,
    set: Vec<String>,
    levers: Vec<(&'static Lever, String)>,
}

/// The model's own flags: exactly one names it.
const WHICH: &str = "which";

/// Levers that have a flag of their own making; a model is named in other ways too.
fn flagged() -> impl Iterator<Item = &'static Lever> {
    levers().filter(|lever| ![at::model::catalog, at::model::family].contains(&lever.path))
}

/// `Training`, of `training`.
fn heading(lever: &Lever) -> String {
    let mut letters = lever.section().chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// `Micro-batch: samples at once on one card [default: 1]`.
fn help(lever: &Lever) -> String {
    let row = &lever.row;
    let mut letters = row.help.chars();
    // A name such as MixedPrecisionPolicy keeps its capitals.
    let name = row.help.split(' ').next().is_some_and(|word| word.chars().filter(|c| c.is_uppercase()).count() > 1);
    let what = match letters.next() {
        Some(_) if name => format!(": {}", row.help),
        Some(first) => format!(": {}", first.to_lowercase().chain(letters).collect::<String>()),
        None => String::new(),
    };
    let default = match lever.constant() {
        _ if !row.otherwise.is_empty() => row.otherwise.to_owned(),
        Some(Value::String(word)) => word,
        other => other.unwrap_or_default().to_string(),
    };
    format!("{}{what} [default: {default}]", row.label)
}

/// The flag of a lever.
fn flag(lever: &Lever) -> Arg {
    let flag = Arg::new(lever.id("_"))
        .long(lever.id("-"))
        .value_name(lever.row.kind.placeholder())
        .help_heading(heading(lever))
        .help(help(lever));
    match lever.row.kind {
        Kind::Words(words) => flag.value_parser(PossibleValuesParser::new(words.iter().map(|word| word.key))),
        // `-1` is a value, and refused as one.
        Kind::Count { .. } | Kind::Amount { .. } | Kind::Power { .. } | Kind::Fraction | Kind::Size => {
            flag.allow_negative_numbers(true)
        }
        _ => flag,
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let names: Vec<&str> = OWN.iter().map(|family| family.name).collect();
        let model =
            |id: &'static str, value: &'static str| Arg::new(id).long(id).value_name(value).help_heading("Model");
        let named = [
            model("model", "ID").group(WHICH).help("A model of the catalog: llama-3.2-1b (see `plimsoll models`)"),
            model("hf-config", "PATH")
                .group(WHICH)
                .value_parser(value_parser!(PathBuf))
                .help("A Hugging Face config.json"),
            model("family", "NAME").group(WHICH).help(format!("A family of our own: {}", names.join(", "))),
            model("hull", "PATH")
                .group(WHICH)
                .value_parser(value_parser!(PathBuf))
                .help("A model of your own, recorded with `plimsoll trace`"),
            model("set", "KEY=VALUE").action(ArgAction::Append).help(
                "A key of the family (stacks=60), an axis of the hull (S=224), or any key of a scenario by its path\n(training.accumulation=8); may be \
                 repeated",
            ),
        ];
        command.args(named).args(flagged().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Mistake> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Mistake> {
        let text = |id: &str| matches.get_one::<String>(id).cloned();
        self.model = text("model");
        self.hf_config = matches.get_one::<PathBuf>("hf-config").cloned();
        self.family = text("family");
        self.hull = matches.get_one::<PathBuf>("hull").cloned();
        self.set = matches.get_many::<String>("set").unwrap_or_default().cloned().collect();
        self.levers = flagged().filter_map(|lever| Some((lever, text(&lever.id("_"))?))).collect();
        Ok(())
    }
}

/// What the flags say, ready to be laid over any number of scenarios.
#[derive(Debug)]
pub struct Overlay {
    /// Replaces `[model]` whole.
    model: Option<Value>,
    /// Paths and their values.
    settings: Vec<(String, Value)>,
}

impl Overlay {
    /// Reads the flags and, with `--hf-config`, the file.
    pub fn new(flags: &Flags) -> Result<Self, Failure> {
        let model = match (&flags.model, &flags.hf_config, &flags.family) {
            (Some(name), _, _) => {
                let id = search::called(name).unwrap_or(name.as_str());
                Some(json!({ "catalog": id }))
            }
            (None, Some(path), _) => {
                let config = source::file(path).and_then(|content| {
                    let config = text::json(&content)?;
                    // A table is checked with the rest of the scenario; anything else would be read as something else.
                    if config.is_object() { Ok(config) } else { Err(not_a_config().into()) }
                });
                Some(json!({ "hf": config.map_err(|failure| failure.in_file(&path.display().to_string()))? }))
            }
            (None, None, Some(name)) => Some(json!({ "family": name })),
            (None, None, None) => match &flags.hull {
                Some(path) => Some(json!({ "hull": hull::content(path)? })),
                None => None,
            },
        };
        let mut settings = Vec::new();
        for (lever, text) in &flags.levers {
            // A card may be called as people call it, and several of it at once.
            let card = if lever.path == at::device::gpu { search::gpu_called(text) } else { None };
            let value = card.map_or_else(|| lever.row.kind.value(text), |(_, card)| card.id.into());
            settings.push((lever.path.to_owned(), value));
            let counted = flags.levers.iter().any(|(lever, _)| lever.path == at::parallel::gpus);
            if let Some((cards, _)) = card.filter(|(cards, _)| *cards > 1 && !counted) {
                settings.push((at::parallel::gpus.to_owned(), cards.into()));
            }
        }
        for pair in &flags.set {
            let Some((key, text)) = pair.split_once('=') else {
                let hint = "write --set stacks=60, or --set training.accumulation=8";
                return Err(Error::new("--set", format!("{pair:?} is not KEY=VALUE"), hint).into());
            };
            let path = if key.contains('.') { key.to_owned() } else { format!("model.{key}") };
            let value = value(&path, text);
            settings.push((path, value));
        }
        Ok(Self { model, settings })
    }

    /// Whether the flags alone say which model.
    pub const fn names_model(&self) -> bool {
        self.model.is_some()
    }

    /// The model that the flags alone say.
    pub const fn model(&self) -> Option<&Value> {
        self.model.as_ref()
    }

    /// What a flag gives a key.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.settings.iter().find(|(path, _)| path == key).map(|(_, value)| value)
    }

    /// Whether a key's value comes from a flag.
    pub fn says(&self, key: &str) -> bool {
        self.model.is_some() && key.starts_with("model") || self.settings.iter().any(|(path, _)| path == key)
    }

    /// Lays the flags over a scenario's table.
    pub fn apply(&self, scenario: &mut Value) {
        // Something else than a table is for the reading to refuse.
        let Value::Object(scenario) = scenario else { return };
        if let Some(model) = &self.model {
            scenario.insert("model".to_owned(), model.clone());
        }
        for (path, value) in &self.settings {
            let steps: Vec<&str> = path.split('.').collect();
            set(scenario, &steps, value);
        }
    }
}

fn not_a_config() -> Error {
    Error::new("model.hf", "it is not a config.json", "give the config.json of a Hugging Face model")
}

fn set(table: &mut Map<String, Value>, steps: &[&str], value: &Value) {
    match steps {
        [] => {}
        [last] => {
            table.insert((*last).to_owned(), value.clone());
        }
        [first, rest @ ..] => {
            let inner = table.entry(*first).or_insert_with(|| json!({}));
            if inner.is_null() {
                *inner = json!({});
            }
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

/// The value a text stands for: by its lever's kind, or by its look where the key is a family's own.
fn value(path: &str, text: &str) -> Value {
    match lever(path) {
        Some(lever) => lever.row.kind.value(text),
        None => match Kind::Flag.value(text) {
            Value::String(_) => Kind::Count { most: u64::MAX }.value(text),
            flag => flag,
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn flags(line: &[&str]) -> Flags {
        let command = Flags::augment_args(Command::new("estimate").no_binary_name(true));
        Flags::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap()
    }

    fn laid_over(line: &[&str], mut scenario: Value) -> Value {
        Overlay::new(&flags(line)).unwrap().apply(&mut scenario);
        scenario
    }

    #[test]
    fn flags_override_what_the_file_says_and_leave_the_rest() {
        let line = ["--batch=8", "--lora-targets=q_proj, v_proj", "--clip-grad-norm=false", "--memory=12000000000"];
        let file =
            json!({ "model": { "catalog": "gpt2" }, "input": { "batch": 4, "seq": 64 }, "training": { "lora": null } });
        assert_eq!(
            laid_over(&line, file),
            json!({
                "model": { "catalog": "gpt2" },
                "input": { "batch": 8, "seq": 64 },
                "training": { "clip_grad_norm": false, "lora": { "targets": ["q_proj", "v_proj"] } },
                "device": { "memory": "12000000000" },
            })
        );
    }

    #[test]
    fn several_cards_can_be_said_at_once() {
        let device = json!({ "gpu": "rtx-4090" });
        assert_eq!(laid_over(&["--gpu=2x4090"], json!({})), json!({ "device": device, "parallel": { "gpus": 2 } }));
        let both = laid_over(&["--gpu=2x4090", "--gpus=4"], json!({}));
        assert_eq!(both, json!({ "device": device, "parallel": { "gpus": 4 } }), "the flag of its own decides");
        assert_eq!(laid_over(&["--gpu=8xh100"], json!({})), json!({ "device": { "gpu": "8xh100" } }), "which h100?");
    }

    #[test]
    fn another_model_replaces_the_whole_section() {
        let file = json!({ "model": { "catalog": "gpt2", "task": "causal-lm" } });
        let line = ["--family", "mlp", "--set", "hidden=64"];
        assert_eq!(laid_over(&line, file), json!({ "model": { "family": "mlp", "hidden": 64 } }));
    }

    #[test]
    fn set_reaches_any_key() {
        let set = ["stacks=60", "bias=true", "training.lora.rank=4", "dropout=0.5", "training.precision=bf16", "x=y"];
        let line: Vec<&str> = set.into_iter().flat_map(|pair| ["--set", pair]).collect();
        assert_eq!(
            laid_over(&line, json!({})),
            json!({
                "model": { "stacks": 60, "bias": true, "dropout": 0.5, "x": "y" },
                "training": { "lora": { "rank": 4 }, "precision": "bf16" },
            })
        );
        assert!(Overlay::new(&flags(&["--set", "stacks"])).is_err());
    }

    /// Every lever has a flag that sets it, and its help says what it is.
    #[test]
    fn every_lever_has_a_flag() {
        for lever in flagged() {
            let text = match lever.row.kind.samples().pop() {
                Some(Value::String(text)) => text,
                Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
                other => other.map_or_else(|| "any".to_owned(), |value| value.to_string()),
            };
            let line = format!("--{}={text}", lever.id("-"));
            let table = laid_over(&[&line], json!({}));
            let found = lever.path.split('.').try_fold(&table, |place, step| place.get(step));
            assert_eq!(found, Some(&lever.row.kind.value(&text)), "{line}");
        }
        let help = Flags::augment_args(Command::new("estimate")).render_long_help().to_string();
        assert!(flagged().all(|lever| help.contains(lever.row.label)), "{help}");
    }
}
