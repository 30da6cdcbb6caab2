//! The flags: one for each key of a scenario, laid over a file or link.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use plimsoll_core::Error;
use plimsoll_core::scenario::{
    Attention, AttentionMask, Checkpointing, KEYS, Kind, LossImpl, Mode, Optimizer, OptimizerImpl, Precision,
    Quantization, ZeroGrad, ZeroGradAt, text,
};
use serde_json::{Map, Value, json};

use super::source;
use crate::exit::Failure;

/// The words of a vocabulary, for `--help` and for what is accepted.
macro_rules! words {
    ($vocabulary:ident) => {
        PossibleValuesParser::new($vocabulary::ALL.iter().map(|v| v.as_str()))
    };
}

/// Numbers and switches are taken as text: what is wrong with one is said once, by the scenario's own reading.
#[derive(Debug, Default, clap::Args)]
pub struct Flags {
    /// A model of the catalog: llama-3.2-1b (see `plimsoll models`)
    #[arg(long, value_name = "ID", help_heading = "Model", group = "which")]
    model: Option<String>,
    /// A Hugging Face config.json
    #[arg(long, value_name = "PATH", help_heading = "Model", group = "which")]
    hf_config: Option<PathBuf>,
    /// A family of our own: mlp, nanogpt, nbeats, resnet, convnext, swin, gat
    #[arg(long, value_name = "NAME", help_heading = "Model", group = "which")]
    family: Option<String>,
    /// What is trained; the default goes by the model
    #[arg(long, value_name = "TASK", help_heading = "Model")]
    task: Option<String>,
    /// A key of the family (stacks=60), or any key of a scenario by its path
    /// (training.accumulation=8); may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Model")]
    set: Vec<String>,

    /// Samples in one micro-batch [default: 1]
    #[arg(long, value_name = "N", help_heading = "Input", allow_negative_numbers = true)]
    batch: Option<String>,
    /// Tokens in a sample [default: 1024, or fewer when the model takes fewer]
    #[arg(long, value_name = "N", help_heading = "Input", allow_negative_numbers = true)]
    seq: Option<String>,
    /// Tokens of the decoder, of an encoder-decoder [default: as --seq]
    #[arg(long, value_name = "N", help_heading = "Input", allow_negative_numbers = true)]
    target_seq: Option<String>,
    /// Side of an image in pixels [default: what the model takes]
    #[arg(long, value_name = "N", help_heading = "Input", allow_negative_numbers = true)]
    image: Option<String>,
    /// Tokens generated after the prompt, in inference
    #[arg(long, value_name = "N", help_heading = "Input", allow_negative_numbers = true)]
    max_new_tokens: Option<String>,
    /// Attention mask [default: none]
    #[arg(long, value_name = "MASK", help_heading = "Input", value_parser = words!(AttentionMask))]
    attention_mask: Option<String>,

    /// Training or inference [default: train]
    #[arg(long, value_name = "MODE", help_heading = "Training", value_parser = words!(Mode))]
    mode: Option<String>,
    /// Precision [default: bf16-amp]
    #[arg(long, value_name = "PRECISION", help_heading = "Training", value_parser = words!(Precision))]
    precision: Option<String>,
    /// Optimizer [default: adamw]
    #[arg(long, value_name = "NAME", help_heading = "Training", value_parser = words!(Optimizer))]
    optimizer: Option<String>,
    /// Implementation of the optimizer [default: foreach]
    #[arg(long, value_name = "IMPL", help_heading = "Training", value_parser = words!(OptimizerImpl))]
    optimizer_impl: Option<String>,
    /// Micro-batches in one optimizer step [default: 1]
    #[arg(long, value_name = "N", help_heading = "Training", allow_negative_numbers = true)]
    accumulation: Option<String>,
    /// Activation checkpointing [default: none]
    #[arg(long, value_name = "HOW", help_heading = "Training", value_parser = words!(Checkpointing))]
    checkpointing: Option<String>,
    /// How attention is computed [default: sdpa]
    #[arg(long, value_name = "HOW", help_heading = "Training", value_parser = words!(Attention))]
    attention: Option<String>,
    /// Whether gradients are clipped [default: true]
    #[arg(long, value_name = "BOOL", help_heading = "Training")]
    clip_grad_norm: Option<String>,
    /// What zero_grad does [default: set-to-none]
    #[arg(long, value_name = "HOW", help_heading = "Training", value_parser = words!(ZeroGrad))]
    zero_grad: Option<String>,
    /// Where zero_grad stands [default: after-step]
    #[arg(long, value_name = "WHERE", help_heading = "Training", value_parser = words!(ZeroGradAt))]
    zero_grad_at: Option<String>,
    /// Whether the loop holds the logits through backward [default: false]
    #[arg(long, value_name = "BOOL", help_heading = "Training")]
    keep_outputs: Option<String>,
    /// Train LoRA adapters of this rank on a frozen model
    #[arg(long, value_name = "N", help_heading = "Training", allow_negative_numbers = true)]
    lora_rank: Option<String>,
    /// What the adapters sit on: q_proj,v_proj or all-linear [default: all-linear]
    #[arg(long, value_name = "NAMES", help_heading = "Training")]
    lora_targets: Option<String>,
    /// Dropout of the adapters [default: 0]
    #[arg(long, value_name = "P", help_heading = "Training", allow_negative_numbers = true)]
    lora_dropout: Option<String>,
    /// Whether the adapters learn magnitudes too (DoRA) [default: false]
    #[arg(long, value_name = "BOOL", help_heading = "Training")]
    lora_dora: Option<String>,
    /// Modules trained whole beside the adapters: embed_tokens,lm_head [default: none]
    #[arg(long, value_name = "NAMES", help_heading = "Training")]
    lora_modules_to_save: Option<String>,
    /// What the frozen base's linear layers hold [default: none]
    #[arg(long, value_name = "HOW", help_heading = "Training", value_parser = words!(Quantization))]
    quantization: Option<String>,
    /// Whether peft's prepare_model_for_kbit_training casts what is not quantized to float32 [default: true]
    #[arg(long, value_name = "BOOL", help_heading = "Training")]
    prepare_kbit: Option<String>,
    /// How head and loss are computed [default: full]
    #[arg(long, value_name = "HOW", help_heading = "Training", value_parser = words!(LossImpl))]
    loss_impl: Option<String>,
    /// Label smoothing of the loss [default: 0]
    #[arg(long, value_name = "P", help_heading = "Training", allow_negative_numbers = true)]
    label_smoothing: Option<String>,
    /// Whether a moving average of the weights is kept [default: false]
    #[arg(long, value_name = "BOOL", help_heading = "Training")]
    ema: Option<String>,
    /// Whether torch.compile is used, which is not modelled [default: false]
    #[arg(long, value_name = "BOOL", help_heading = "Training")]
    compile: Option<String>,

    /// A GPU of the catalog (see `plimsoll gpus`) [default: rtx-5070-ti-laptop]
    #[arg(long, value_name = "ID", help_heading = "Device")]
    gpu: Option<String>,
    /// What one process may use of the card: "11.6 GiB"
    #[arg(long, value_name = "SIZE", help_heading = "Device", allow_negative_numbers = true)]
    memory: Option<String>,
    /// How deep the run may sit: "11 GiB" [default: 92 % of the memory]
    #[arg(long, value_name = "SIZE", help_heading = "Device", allow_negative_numbers = true)]
    load_line: Option<String>,
    /// Whether to count what kernels allocate inside [default: true]
    #[arg(long, value_name = "BOOL", help_heading = "Device")]
    workspaces: Option<String>,

    /// PyTorch, major.minor
    #[arg(long, value_name = "VERSION", help_heading = "Software")]
    torch: Option<String>,
    /// transformers, major.minor
    #[arg(long, value_name = "VERSION", help_heading = "Software")]
    transformers: Option<String>,
    /// bitsandbytes, major.minor.patch
    #[arg(long, value_name = "VERSION", help_heading = "Software")]
    bitsandbytes: Option<String>,
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
            (Some(id), _, _) => Some(json!({ "catalog": id })),
            (None, Some(path), _) => {
                let config = source::file(path).and_then(|content| {
                    let config = text::json(&content)?;
                    // A table is checked with the rest of the scenario; anything else would be read as something else.
                    if config.is_object() { Ok(config) } else { Err(not_a_config().into()) }
                });
                Some(json!({ "hf": config.map_err(|failure| failure.in_file(&path.display().to_string()))? }))
            }
            (None, None, Some(name)) => Some(json!({ "family": name })),
            (None, None, None) => None,
        };
        let given: [(&str, &Option<String>); 36] = [
            ("model.task", &flags.task),
            ("input.batch", &flags.batch),
            ("input.seq", &flags.seq),
            ("input.target_seq", &flags.target_seq),
            ("input.image", &flags.image),
            ("input.max_new_tokens", &flags.max_new_tokens),
            ("input.attention_mask", &flags.attention_mask),
            ("training.mode", &flags.mode),
            ("training.precision", &flags.precision),
            ("training.optimizer", &flags.optimizer),
            ("training.optimizer_impl", &flags.optimizer_impl),
            ("training.accumulation", &flags.accumulation),
            ("training.checkpointing", &flags.checkpointing),
            ("training.attention", &flags.attention),
            ("training.clip_grad_norm", &flags.clip_grad_norm),
            ("training.zero_grad", &flags.zero_grad),
            ("training.zero_grad_at", &flags.zero_grad_at),
            ("training.keep_outputs", &flags.keep_outputs),
            ("training.lora.rank", &flags.lora_rank),
            ("training.lora.targets", &flags.lora_targets),
            ("training.lora.dropout", &flags.lora_dropout),
            ("training.lora.dora", &flags.lora_dora),
            ("training.lora.modules_to_save", &flags.lora_modules_to_save),
            ("training.quantization", &flags.quantization),
            ("training.prepare_kbit", &flags.prepare_kbit),
            ("training.loss_impl", &flags.loss_impl),
            ("training.label_smoothing", &flags.label_smoothing),
            ("training.ema", &flags.ema),
            ("training.compile", &flags.compile),
            ("device.gpu", &flags.gpu),
            ("device.memory", &flags.memory),
            ("device.load_line", &flags.load_line),
            ("device.workspaces", &flags.workspaces),
            ("software.torch", &flags.torch),
            ("software.transformers", &flags.transformers),
            ("software.bitsandbytes", &flags.bitsandbytes),
        ];
        let mut settings: Vec<(String, Value)> = Vec::new();
        for (path, text) in given {
            if let Some(text) = text {
                settings.push((path.to_owned(), value(path, text)));
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

/// The value a text stands for: by its key's kind, or by its look where the key is a family's own.
fn value(path: &str, text: &str) -> Value {
    match KEYS.iter().find(|key| key.path() == path) {
        Some(key) => key.kind.value(text),
        None => match Kind::Flag.value(text) {
            Value::String(_) => Kind::Number.value(text),
            flag => flag,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_over(flags: Flags, mut scenario: Value) -> Value {
        Overlay::new(&flags).unwrap().apply(&mut scenario);
        scenario
    }

    #[test]
    fn flags_override_what_the_file_says_and_leave_the_rest() {
        let flags = Flags {
            batch: Some("8".into()),
            lora_targets: Some("q_proj, v_proj".into()),
            clip_grad_norm: Some("false".into()),
            memory: Some("12000000000".into()),
            ..Flags::default()
        };
        let file =
            json!({ "model": { "catalog": "gpt2" }, "input": { "batch": 4, "seq": 64 }, "training": { "lora": null } });
        assert_eq!(
            laid_over(flags, file),
            json!({
                "model": { "catalog": "gpt2" },
                "input": { "batch": 8, "seq": 64 },
                "training": { "clip_grad_norm": false, "lora": { "targets": ["q_proj", "v_proj"] } },
                "device": { "memory": "12000000000" },
            })
        );
    }

    #[test]
    fn another_model_replaces_the_whole_section() {
        let flags = Flags { family: Some("mlp".into()), set: vec!["hidden=64".into()], ..Flags::default() };
        let file = json!({ "model": { "catalog": "gpt2", "task": "causal-lm" } });
        assert_eq!(laid_over(flags, file), json!({ "model": { "family": "mlp", "hidden": 64 } }));
    }

    #[test]
    fn set_reaches_any_key() {
        let set = ["stacks=60", "bias=true", "training.lora.rank=4", "dropout=0.5", "training.precision=bf16", "x=y"];
        let flags = Flags { set: set.map(String::from).to_vec(), ..Flags::default() };
        assert_eq!(
            laid_over(flags, json!({})),
            json!({
                "model": { "stacks": 60, "bias": true, "dropout": 0.5, "x": "y" },
                "training": { "lora": { "rank": 4 }, "precision": "bf16" },
            })
        );
        let flags = Flags { set: vec!["stacks".into()], ..Flags::default() };
        assert!(Overlay::new(&flags).is_err());
    }

    #[test]
    fn every_key_has_a_flag() {
        let flags = <super::super::Input as clap::Args>::augment_args(clap::Command::new("estimate"));
        let names: Vec<String> = flags.get_arguments().map(|a| a.get_id().to_string()).collect();
        for key in KEYS {
            let flag = match key.name {
                "catalog" => "model".to_owned(),
                name => name.replace('.', "_"),
            };
            assert!(names.contains(&flag), "no flag for {}", key.path());
        }
    }
}
