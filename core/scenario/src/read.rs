//! The way in: a table becomes a valid [`Scenario`], or an error that names the key.

use plimsoll_catalog as catalog;
use plimsoll_catalog::software::{Rules, Version, rules};
use plimsoll_ground::quoted;
use plimsoll_ground::{Error, Result};
use serde_json::Value;

use super::measured::Scope;
use super::model::{self, default_task, nearest_hint};
use super::table::{Table, found};
use super::{
    Attention, Checkpointing, Device, Lora, LoraTargets, LossImpl, Mode, ModelSource, Optimizer, OptimizerImpl,
    Precision, Quantization, Scenario, Software, Training, ZeroGrad, ZeroGradAt, generation, input, keys, limits,
    supported, text,
};

/// The format's version, written as `schema`.
pub const SCHEMA: u64 = 1;

/// The card when none is named.
pub const DEFAULT_GPU: &str = "rtx-5070-ti-laptop";

/// The model when a link names none.
pub const DEFAULT_MODEL: &str = "llama-3.2-1b";

impl Scenario {
    /// Reads a scenario from JSON text.
    ///
    /// ```
    /// use plimsoll_core::Scenario;
    ///
    /// let error = Scenario::from_json(r#"{"model": {"family": "mlp"}, "input": {"bacth": 64}}"#).unwrap_err();
    /// assert_eq!(error.to_string(), r#"input.bacth: unknown key; did you mean "batch"?"#);
    /// ```
    ///
    /// # Errors
    /// Text that is not JSON, and all of [`Scenario::from_value`]'s.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::from_value(&text::json(text)?)
    }

    /// Reads a scenario from TOML text.
    ///
    /// # Errors
    /// Text that is not TOML, and all of [`Scenario::from_value`]'s.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Self> {
        Self::from_value(&text::toml(text)?)
    }

    /// Reads a scenario from a JSON value. Missing keys take their defaults.
    ///
    /// # Errors
    /// An unknown key, a value of the wrong type or outside its range, an id that is in no catalog, something that is
    /// not estimated yet: each names its key and what to do.
    pub fn from_value(value: &Value) -> Result<Self> {
        Self::read(value, Scope::Estimated)
    }

    pub(super) fn read(value: &Value, scope: Scope) -> Result<Self> {
        let root = Table::root(value)?;
        schema(&root)?;
        not_a_config(&root)?;
        let mut sections = vec!["schema"];
        sections.extend(keys::SECTIONS);
        root.only(&sections)?;
        let (model, traits) = model::read(&root.table("model")?, scope)?;
        let input_table = root.table("input")?;
        let input = input::read(&input_table, &model.source, traits)?;
        let software = software(&root.table("software")?)?;
        let training = training(&root.table("training")?, &software)?;
        let input = generation::read(input, &input_table, &model, traits, training.mode)?;
        let device = device(&root.table("device")?)?;
        Ok(Self { model, input, training, device, software })
    }

    /// A scenario of this model with every other key at its default.
    pub fn of(source: ModelSource) -> Self {
        let traits = source.traits();
        Self {
            input: input::default(&source, traits),
            model: super::Model { task: default_task(traits), source },
            training: Training::default(),
            device: Device::default(),
            software: Software::default(),
        }
    }
}

/// Llama 3.2 1B with every key at its default: what a link without parameters says.
impl Default for Scenario {
    fn default() -> Self {
        Self::of(ModelSource::Catalog(DEFAULT_MODEL.to_owned()))
    }
}

impl Default for Training {
    fn default() -> Self {
        Self::default_of(Optimizer::AdamW, &Software::default())
    }
}

impl Training {
    /// What a recipe with this optimizer says when it says nothing else: PyTorch's own defaults, which older versions
    /// had otherwise.
    pub(super) fn default_of(optimizer: Optimizer, software: &Software) -> Self {
        let rules = Rules::of(software);
        let offered = supported::implementations(optimizer);
        let newest = offered.first().copied().unwrap_or(OptimizerImpl::Foreach);
        Self {
            mode: Mode::Train,
            precision: Precision::Bf16Amp,
            optimizer,
            optimizer_impl: if rules.has(&rules::FOREACH) || !offered.contains(&OptimizerImpl::ForLoop) {
                newest
            } else {
                OptimizerImpl::ForLoop
            },
            accumulation: 1,
            checkpointing: Checkpointing::None,
            attention: if rules.has(&rules::SDPA) { Attention::Sdpa } else { Attention::Eager },
            clip_grad_norm: true,
            zero_grad: if rules.has(&rules::SET_TO_NONE) { ZeroGrad::SetToNone } else { ZeroGrad::Zero },
            zero_grad_at: ZeroGradAt::AfterStep,
            keep_outputs: false,
            lora: None,
            quantization: Quantization::None,
            prepare_kbit: true,
            loss_impl: LossImpl::Full,
            label_smoothing: 0.0,
            ema: false,
            compile: false,
        }
    }
}

impl Default for Device {
    fn default() -> Self {
        Self { gpu: DEFAULT_GPU.to_owned(), memory: None, load_line: None, workspaces: true }
    }
}

fn schema(root: &Table<'_>) -> Result<()> {
    let hint = "write schema = 1, or leave it out";
    match root.get("schema") {
        None => Ok(()),
        Some(Value::Number(n)) if n.as_u64() == Some(SCHEMA) => Ok(()),
        Some(Value::Number(n)) if n.as_f64().is_some_and(|n| n > 1.0) => Err(newer("schema", &n.to_string())),
        Some(Value::Number(n)) => Err(Error::new("schema", format!("there is no schema {n}"), hint)),
        Some(other) => Err(Error::new("schema", format!("expected the number 1, found {}", found(other)), hint)),
    }
}

/// The error for a scenario or link of a later format.
pub(super) fn newer(key: &str, version: &str) -> Error {
    Error::new(
        key,
        format!("made by a newer Plimsoll (schema {version}; this one reads schema {SCHEMA})"),
        "update Plimsoll",
    )
}

/// A `config.json` given in the place of a scenario deserves its own words.
fn not_a_config(root: &Table<'_>) -> Result<()> {
    match root.get("model_type") {
        Some(Value::String(name)) if root.get("model").is_none() => Err(Error::new(
            "scenario",
            format!("this is a Hugging Face config.json (model_type {}), not a scenario", quoted(name)),
            "put it under model.hf; on the command line: --hf-config FILE",
        )),
        _ => Ok(()),
    }
}

fn training(table: &Table<'_>, software: &Software) -> Result<Training> {
    table.only(&keys::names("training"))?;
    let optimizer = table.word("optimizer")?.unwrap_or(Optimizer::AdamW);
    let default = Training::default_of(optimizer, software);
    let mode = table.word("mode")?.unwrap_or(default.mode);
    if !supported::MODES.contains(&mode) {
        let modes: Vec<&str> = supported::MODES.iter().map(|m| m.as_str()).collect();
        return Err(Error::new(
            table.at("mode"),
            format!("{mode} is not estimated yet"),
            format!("use {}, or leave mode out", modes.join(" or ")),
        ));
    }
    let implementations = supported::implementations(optimizer);
    let optimizer_impl = match table.word("optimizer_impl")? {
        Some(given) if implementations.contains(&given) => given,
        Some(given) => {
            let words: Vec<&str> = implementations.iter().map(|i| i.as_str()).collect();
            return Err(Error::new(
                table.at("optimizer_impl"),
                format!("{optimizer} has no {given} implementation"),
                format!("use {}, or leave optimizer_impl out", words.join(" or ")),
            ));
        }
        None => default.optimizer_impl,
    };
    let attention = table.word("attention")?.unwrap_or(default.attention);
    if attention == Attention::Sdpa && default.attention == Attention::Eager {
        return Err(Error::new(
            table.at("attention"),
            format!("PyTorch {} has no scaled_dot_product_attention", software.torch),
            format!("use eager, or torch {} or later", rules::SDPA.since),
        ));
    }
    let training = Training {
        mode,
        precision: table.word("precision")?.unwrap_or(default.precision),
        optimizer,
        optimizer_impl,
        accumulation: table.count("accumulation", limits::ACCUMULATION)?.unwrap_or(default.accumulation),
        checkpointing: table.word("checkpointing")?.unwrap_or(default.checkpointing),
        attention,
        clip_grad_norm: table.flag("clip_grad_norm")?.unwrap_or(default.clip_grad_norm),
        zero_grad: table.word("zero_grad")?.unwrap_or(default.zero_grad),
        zero_grad_at: table.word("zero_grad_at")?.unwrap_or(default.zero_grad_at),
        keep_outputs: table.flag("keep_outputs")?.unwrap_or(default.keep_outputs),
        lora: table.optional("lora").map(|_| lora(&table.table("lora")?)).transpose()?,
        quantization: table.word("quantization")?.unwrap_or(default.quantization),
        prepare_kbit: table.flag("prepare_kbit")?.unwrap_or(default.prepare_kbit),
        loss_impl: table.word("loss_impl")?.unwrap_or(default.loss_impl),
        label_smoothing: table.fraction("label_smoothing")?.unwrap_or(default.label_smoothing),
        ema: table.flag("ema")?.unwrap_or(default.ema),
        compile: table.flag("compile")?.unwrap_or(default.compile),
    };
    generation::check(&training, &default, table)?;
    if training.quantization != Quantization::None && training.mode == Mode::Train && training.lora.is_none() {
        return Err(Error::new(
            table.at("quantization"),
            "quantized weights are not trained themselves",
            "add training.lora, or leave quantization out",
        ));
    }
    unprepared(&training, table)?;
    Ok(training)
}

/// What `prepare_kbit = false` cannot stand beside; `table` is `[training]`.
fn unprepared(training: &Training, table: &Table<'_>) -> Result<()> {
    if training.prepare_kbit {
        return Ok(());
    }
    let refuse = |problem: &str, hint: &str| Err(Error::new(table.at("prepare_kbit"), problem, hint));
    if training.quantization == Quantization::None {
        return refuse(
            "without quantization there is nothing to prepare",
            "leave it out, or set training.quantization to int8, nf4 or nf4-double",
        );
    }
    let saved = training.lora.as_ref().is_some_and(|lora| !lora.modules_to_save.is_empty());
    if training.precision == Precision::Fp16Amp && saved {
        // `_unscale_grads_` of `torch/amp/grad_scaler.py`: "Attempting to unscale FP16 gradients." Modules to save are
        // copies in the dtype the base is in; only adapters are made float32.
        return refuse(
            "the modules to save stay in float16, and GradScaler refuses gradients in float16",
            "use precision = \"bf16-amp\", or leave prepare_kbit or lora.modules_to_save out",
        );
    }
    Ok(())
}

fn lora(table: &Table<'_>) -> Result<Lora> {
    table.only(&["rank", "targets", "dropout", "dora", "modules_to_save"])?;
    let default = Lora::default();
    Ok(Lora {
        rank: table.count("rank", limits::RANK)?.unwrap_or(default.rank),
        targets: table.get("targets").map_or(Ok(default.targets), |v| lora_targets(v, table.at("targets")))?,
        dropout: table.fraction("dropout")?.unwrap_or(default.dropout),
        dora: table.flag("dora")?.unwrap_or(default.dora),
        modules_to_save: match table.get("modules_to_save") {
            None => default.modules_to_save,
            Some(value) => module_names(value, &table.at("modules_to_save"), SAVED)?,
        },
    })
}

fn lora_targets(value: &Value, key: String) -> Result<LoraTargets> {
    match value {
        Value::String(text) if text == "all-linear" => Ok(LoraTargets::AllLinear),
        list => Ok(LoraTargets::Names(module_names(list, &key, TARGETS)?)),
    }
}

const TARGETS: &str = "give a list of module names, as [\"q_proj\", \"v_proj\"], or \"all-linear\"";
const SAVED: &str = "give a list of module names, as [\"embed_tokens\", \"lm_head\"], or leave it out";

/// A list of module names; `hint` says what to give.
fn module_names(value: &Value, key: &str, hint: &'static str) -> Result<Vec<String>> {
    let refuse = |problem: String| Err(Error::new(key, problem, hint));
    let items = match value {
        Value::Array(items) if items.is_empty() => return refuse("the list is empty".to_owned()),
        Value::Array(items) if items.len() > limits::TARGETS => {
            return refuse(format!("{} names are too many", items.len()));
        }
        Value::Array(items) => items,
        other => return refuse(format!("expected a list, found {}", found(other))),
    };
    let mut names: Vec<String> = Vec::with_capacity(items.len());
    for item in items {
        let Value::String(name) = item else {
            return refuse(format!("expected a module name, found {}", found(item)));
        };
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if name.is_empty() || name.len() > limits::TARGET_NAME || !name.chars().all(letters) {
            return refuse(format!("{} is not a module name", quoted(name)));
        }
        // peft takes a set: a name given twice counts once.
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(names)
}

fn device(table: &Table<'_>) -> Result<Device> {
    table.only(&keys::names("device"))?;
    let id = table.text("gpu", DEFAULT_GPU)?.unwrap_or(DEFAULT_GPU);
    let Some(gpu) = catalog::gpu(id) else {
        let ids: Vec<&str> = catalog::gpus().iter().map(|g| g.id).collect();
        return Err(Error::new(
            table.at("gpu"),
            format!("no GPU {} in the catalog", quoted(id)),
            nearest_hint(id, &ids, "ids read like rtx-5070-ti-laptop, a100-80gb, h200; see the list of GPUs"),
        ));
    };
    let memory = table.memory("memory", limits::MEMORY_LEAST, limits::MEMORY_MOST)?;
    let load_line = table.memory("load_line", limits::MEMORY_LEAST, limits::MEMORY_MOST)?;
    let capacity = memory.unwrap_or(gpu.memory);
    if let Some(line) = load_line.filter(|line| *line > capacity) {
        return Err(Error::new(
            table.at("load_line"),
            format!("{line} is above the {capacity} of memory the device has"),
            "give a line below it, or raise device.memory",
        ));
    }
    let workspaces = table.flag("workspaces")?.unwrap_or(true);
    Ok(Device { gpu: id.to_owned(), memory, load_line, workspaces })
}

fn software(table: &Table<'_>) -> Result<Software> {
    table.only(&keys::names("software"))?;
    let default = Software::default();
    Ok(Software {
        torch: version(table, "torch", &default.torch, Version::parse)?.unwrap_or(default.torch),
        transformers: version(table, "transformers", &default.transformers, Version::parse)?
            .unwrap_or(default.transformers),
        bitsandbytes: version(table, "bitsandbytes", &default.bitsandbytes, Version::parse_patch)?
            .unwrap_or(default.bitsandbytes),
    })
}

/// A version of a package: its first two numbers, as `2.11` of `2.11.0+cu128`, or three, as `parse` has it. The rules hang
/// on them.
fn version(
    table: &Table<'_>,
    name: &str,
    example: &str,
    parse: impl Fn(&str) -> Option<Version>,
) -> Result<Option<String>> {
    const LONGEST: usize = 64;
    let Some(text) = table.text(name, example)? else { return Ok(None) };
    match parse(text).filter(|_| text.len() <= LONGEST) {
        Some(version) => Ok(Some(version.to_string())),
        None => Err(Error::new(
            table.at(name),
            format!("{} is not a version", quoted(text)),
            format!("write it as {example:?}, or leave {name} out"),
        )),
    }
}
