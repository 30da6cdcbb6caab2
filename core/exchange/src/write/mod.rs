//! A scenario as the configuration of another tool, or as code. What is written is read back before it is given away: a
//! form that cannot say something of the scenario is refused with the key that it cannot say.

mod accelerate;
mod axolotl;
mod deepspeed;
mod llama_factory;
mod parts;
mod pytorch;
mod torchtune;
mod trainer;

use plimsoll_ground::{Error, Result, vocabulary};
use plimsoll_scenario::{Link, Scenario, Trainer, at, levers};
use serde_json::{Map, Value};

use crate::read::{Source, merge, read};

vocabulary!(
    /// What a scenario can be written as.
    Form {
        /// A training loop in plain PyTorch.
        PyTorch = "pytorch" as "PyTorch loop",
        /// A script with transformers' Trainer, peft and bitsandbytes.
        Trainer = "trainer" as "transformers Trainer",
        /// Axolotl's YAML.
        Axolotl = "axolotl" as "Axolotl",
        /// LLaMA-Factory's YAML.
        LlamaFactory = "llama-factory" as "LLaMA-Factory",
        /// torchtune's YAML.
        Torchtune = "torchtune" as "torchtune",
        /// Accelerate's YAML: cards, strategy and precision, without the recipe.
        Accelerate = "accelerate" as "Accelerate",
        /// DeepSpeed's JSON: stage, batch and precision, without model and adapters.
        DeepSpeed = "deepspeed" as "DeepSpeed",
        /// A scenario of Plimsoll in TOML.
        Toml = "toml" as "TOML",
        /// A scenario of Plimsoll in JSON.
        Json = "json" as "JSON",
        /// The command that estimates it.
        Command = "command" as "command",
    }
);

impl Form {
    /// How a file of it is usually called.
    pub const fn file(self) -> &'static str {
        match self {
            Self::PyTorch | Self::Trainer => "train.py",
            Self::Axolotl => "axolotl.yaml",
            Self::LlamaFactory => "llama_factory.yaml",
            Self::Torchtune => "torchtune.yaml",
            Self::Accelerate => "accelerate.yaml",
            Self::DeepSpeed => "deepspeed.json",
            Self::Toml => "run.toml",
            Self::Json => "run.json",
            Self::Command => "run.sh",
        }
    }

    /// Whether it says the whole run, or only how it is spread and started.
    const fn is_whole(self) -> bool {
        !matches!(self, Self::Accelerate | Self::DeepSpeed)
    }
}

/// Sections that are about where a run is looked at, not how it is made; and what is up to the data.
const ELSEWHERE: [&str; 3] = ["device.", "software.", "allocator."];

/// Keys that no configuration says: which task it is follows from the model, padding from the data.
const UNSAID: [&str; 3] = [at::model::task, at::input::attention_mask, at::parallel::per_node];

/// Writes a scenario in a form.
///
/// # Errors
/// What the form cannot say: the lever that is to blame, and which form can.
pub fn write(scenario: &Scenario, form: Form) -> Result<String> {
    let text = match form {
        Form::Toml => return Ok(scenario.to_toml().trim_start().to_owned()),
        Form::Json => return Ok(format!("{:#}\n", scenario.to_value())),
        Form::Command => return Ok(format!("{}\n", Link::command(scenario))),
        Form::PyTorch => pytorch::write(scenario)?,
        Form::Trainer => trainer::write(scenario)?,
        Form::Axolotl => axolotl::write(scenario)?,
        Form::LlamaFactory => llama_factory::write(scenario)?,
        Form::Torchtune => torchtune::write(scenario)?,
        Form::Accelerate => accelerate::write(scenario)?,
        Form::DeepSpeed => deepspeed::write(scenario)?,
    };
    holds(scenario, form, &text)?;
    Ok(text)
}

/// Reads it back and compares, lever by lever.
fn holds(scenario: &Scenario, form: Form, text: &str) -> Result<()> {
    let source = Source { name: form.file().to_owned(), text: text.to_owned() };
    let said = read(&[source], Some(scenario.parallel.gpus))?.scenario;
    let own = scenario.to_value();
    let mut table = match (&own, form.is_whole()) {
        (Value::Object(own), false) => own.clone(),
        (Value::Object(own), true) => {
            let kept = |key: &&String| ELSEWHERE.iter().any(|section| section.trim_end_matches('.') == key.as_str());
            own.iter().filter(|(key, _)| kept(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
        }
        (_, _) => Map::new(),
    };
    merge(&mut table, &said);
    // A pasted config is in no catalog: only its sizes could be compared, and they were written as they are.
    if let Some(model) = own.get("model").filter(|model| model.get("hf").is_some()) {
        table.insert("model".to_owned(), model.clone());
    }
    let back = Scenario::from_value_to_measure(&Value::Object(table));
    let refused = |key: &str| {
        let problem = format!("cannot be said to {}", form.in_words().label);
        Err(Error::new(key, problem, "leave it at its default, or take another form: toml and json say everything"))
    };
    let back = match back {
        Ok(back) => back,
        Err(error) => return refused(&error.key),
    };
    if back.model.source != scenario.model.source {
        return refused(at::model::catalog);
    }
    // A loop that is written by hand and the Trainer's take what the other is given: which of both runs is up to the form.
    let either = |scenario: &Scenario| matches!(scenario.training.trainer, Trainer::None | Trainer::Transformers);
    let loops = |back: &Scenario| either(back) && either(scenario);
    let other = levers().find(|lever| {
        let unsaid = UNSAID.contains(&lever.path) || ELSEWHERE.iter().any(|section| lever.path.starts_with(section));
        !unsaid && lever.get(&back) != lever.get(scenario) && !(lever.path == at::training::trainer && loops(&back))
    });
    other.map_or(Ok(()), |lever| refused(lever.path))
}
