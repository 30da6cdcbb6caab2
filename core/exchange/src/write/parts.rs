//! What several forms need: names, words, and lines of YAML.

use std::fmt::Write as _;

use plimsoll_catalog::families::{Liger, Task};
use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{
    BaseDtype, Checkpointing, Kernels, Link, LoraTargets, Mode, ModelSource, Optimizer, OptimizerImpl, Precision,
    Quantization, Scenario, at,
};

/// The name of the model on the Hub, or a place to put one.
pub fn model(scenario: &Scenario) -> Result<String> {
    match &scenario.model.source {
        ModelSource::Catalog(id) => {
            let found = plimsoll_catalog::models().iter().find(|model| model.id == id.as_str());
            Ok(found.map_or_else(|| id.clone(), |model| model.source.to_owned()))
        }
        ModelSource::HuggingFace(_) => Ok("path/to/the/model".to_owned()),
        ModelSource::Family { .. } | ModelSource::Hull(_) => Err(Error::new(
            "model",
            "it is no model of Hugging Face, which this form is for",
            "take toml or json, or name a model of the Hub",
        )),
    }
}

/// Whether each layer is recomputed, and whether by `use_reentrant=True`. Which operators keep their results only code can say.
pub fn checkpoints(scenario: &Scenario) -> (bool, bool) {
    let checkpointing = scenario.training.checkpointing;
    let nested = checkpointing == Checkpointing::Reentrant;
    (nested || checkpointing == Checkpointing::Full, nested)
}

/// What Liger's kernels take the place of, where they do.
pub fn liger(scenario: &Scenario) -> Option<&'static Liger> {
    scenario.family().liger.filter(|_| scenario.training.kernels == Kernels::Liger)
}

/// Training, and of a causal language model where nothing else is taken.
pub fn only_training(scenario: &Scenario) -> Result<()> {
    if scenario.training.mode == Mode::Train {
        return Ok(());
    }
    Err(Error::new(at::training::mode, "inference is not what this form is for", "take toml, json or command"))
}

/// Of a causal language model.
pub fn only_causal(scenario: &Scenario) -> Result<()> {
    only_training(scenario)?;
    if scenario.model.task == Task::CausalLm {
        return Ok(());
    }
    Err(Error::new(at::model::task, "this tool trains causal language models", "take pytorch or trainer"))
}

/// The class that loads the scenario's model for its task.
pub fn auto_class(scenario: &Scenario) -> Option<&'static str> {
    Some(match scenario.model.task {
        Task::CausalLm if scenario.family().tower => "AutoModelForImageTextToText",
        Task::CausalLm => "AutoModelForCausalLM",
        Task::MaskedLm => "AutoModelForMaskedLM",
        Task::SequenceClassification => "AutoModelForSequenceClassification",
        Task::Seq2SeqLm => "AutoModelForSeq2SeqLM",
        Task::ImageClassification => "AutoModelForImageClassification",
        _ => return None,
    })
}

/// The type that weights are loaded in: `float32`, `float16`, `bfloat16`.
pub fn weights(scenario: &Scenario) -> &'static str {
    let training = &scenario.training;
    match (training.base_dtype, training.precision) {
        (BaseDtype::Float32, _) => "float32",
        (BaseDtype::Float16, _) => "float16",
        (BaseDtype::Bfloat16, _) => "bfloat16",
        // What a quantized base computes in, and what is left of it is loaded in.
        (_, Precision::Bf16Amp) if training.quantization != Quantization::None => "bfloat16",
        (_, Precision::Fp16Amp) if training.quantization != Quantization::None => "float16",
        (_, Precision::Fp32 | Precision::Bf16Amp | Precision::Fp16Amp) => "float32",
        (_, Precision::Bf16) => "bfloat16",
        (_, Precision::Fp16) => "float16",
    }
}

/// Whether the forward runs under autocast, in which type.
pub const fn autocast(scenario: &Scenario) -> Option<&'static str> {
    match scenario.training.precision {
        Precision::Bf16Amp => Some("bfloat16"),
        Precision::Fp16Amp => Some("float16"),
        Precision::Fp32 | Precision::Bf16 | Precision::Fp16 => None,
    }
}

/// What transformers' `optim` calls the optimizer.
pub fn optim(scenario: &Scenario) -> Result<&'static str> {
    use Optimizer as O;
    use OptimizerImpl as I;
    let training = &scenario.training;
    Ok(match (training.optimizer, training.optimizer_impl) {
        (O::AdamW, I::Foreach) => "adamw_torch",
        (O::AdamW, I::Fused) => "adamw_torch_fused",
        (O::AdamW8bit, _) => "adamw_8bit",
        (O::PagedAdamW, _) => "paged_adamw_32bit",
        (O::PagedAdamW8bit, _) => "paged_adamw_8bit",
        (O::Adafactor, _) => "adafactor",
        (O::Sgd, I::Foreach) => "sgd",
        (O::Adagrad, I::Foreach) => "adagrad",
        (O::RmsProp, I::Foreach) => "rmsprop",
        (O::Lion, I::Fused) => "lion_32bit",
        (optimizer, implementation) => {
            let problem = format!("transformers has no name for {optimizer} ({implementation})");
            return Err(Error::new(at::training::optimizer, problem, "take pytorch, toml or json"));
        }
    })
}

/// Adapters' modules as a list in brackets, or the word for all of them.
pub fn targets(scenario: &Scenario, all: &str) -> Option<String> {
    let lora = scenario.training.lora.as_ref()?;
    Some(match &lora.targets {
        LoraTargets::AllLinear => all.to_owned(),
        LoraTargets::Names(names) => list(names),
    })
}

/// `["q_proj", "v_proj"]`: a list that YAML, JSON and Python all read.
pub fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    format!("[{}]", names.join(", "))
}

/// Where it comes from, as a comment of each line.
pub fn header(scenario: &Scenario, how: &str) -> String {
    let mut out = format!("# {how}\n");
    let _ = writeln!(out, "# Planned with Plimsoll: {}", Link::command(scenario));
    out
}

/// Lines of YAML.
#[derive(Debug, Default)]
pub struct Yaml(pub String);

impl Yaml {
    /// `key: value`.
    pub fn put(&mut self, key: &str, value: impl std::fmt::Display) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{key}: {value}");
    }

    /// The same where there is one.
    pub fn maybe(&mut self, key: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.0.push('\n');
    }
}
