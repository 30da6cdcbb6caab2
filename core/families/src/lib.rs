//! Architectures, one file a family, written the way the original forward reads.

#![forbid(unsafe_code)]

mod attend;
mod attribute_map;
mod bart;
mod bert;
mod bert_encoder;
mod bloom;
mod causal_lm;
mod classification;
mod clip;
mod config;
mod convnext;
mod deberta;
mod deberta_attention;
mod deberta_head;
mod decoder;
mod decoder_head;
mod dinov2;
mod distilbert;
mod electra;
mod falcon;
mod gat;
mod gemma;
mod gemma2;
mod gpt2;
mod gpt_neox;
mod gptj;
mod heads;
mod image_batch;
mod llama;
mod loss;
mod mixtral;
mod mlp;
mod modernbert;
mod nanogpt;
mod nbeats;
mod olmo;
mod olmo2;
mod olmoe;
mod opt;
mod phi;
mod phi3;
mod pre_norm;
mod qwen_moe;
mod resnet;
mod roberta;
mod seq2seq;
mod smollm3;
mod sparse;
mod stablelm;
mod stages;
mod starcoder2;
mod swin;
mod swin_layer;
mod swin_windows;
mod t5;
mod torchvision;
mod vit;
mod whisper;

use std::rc::Rc;

use plimsoll_ground::{Error, Result};
use plimsoll_scenario::supported;
use plimsoll_scenario::{Attention, Checkpointing, Input, Mode, ModelSource, Precision, Quantization, Scenario, Task};
use plimsoll_torch::Batch;
use plimsoll_torch::generate::Generate;
use plimsoll_torch::nn::{AdapterPlan, ExpertNames, QuantizationPlan, Scope};
use plimsoll_torch::ops::{SdpaRules, SharedMap};
use plimsoll_torch::tensor::{Context, DType, Tensor};

pub use config::Config;
pub use loss::smoothed;

/// What a forward returns: the loss, and what else the output object holds (logits).
#[derive(Debug)]
pub struct Output {
    /// A scalar with a gradient.
    pub loss: Tensor,
    /// What lives on if the loop holds the outputs.
    pub held: Vec<Tensor>,
}

/// A model on the device.
pub trait Model: std::fmt::Debug {
    /// Allocates one micro-batch.
    fn batch(&self) -> Batch;

    /// The training forward: the loss of a micro-batch. In inference there are no labels, and the outputs stand in the
    /// loss's place.
    fn forward(&self, batch: &Batch) -> Output;

    /// How it makes text, where it does.
    fn generate(&self) -> Option<&dyn Generate> {
        None
    }
}

/// What a family needs to know besides its sizes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Batch, sequence, mask.
    pub input: Input,
    /// What is trained.
    pub task: Task,
    /// sdpa or eager.
    pub attention: Attention,
    /// Whether layers are checkpointed.
    pub checkpointing: bool,
    /// Whether the base is frozen under adapters.
    pub adapters: bool,
    /// Which attention kernels the card has.
    pub rules: SdpaRules,
}

impl Plan {
    /// Tokens per sample.
    ///
    /// # Errors
    /// When the scenario has none.
    pub fn seq(&self) -> Result<u64> {
        self.input.seq.ok_or_else(|| {
            Error::new("input.seq", "this model reads tokens, but no sequence length is given", "set input.seq")
        })
    }
}

impl Plan {
    /// For architectures whose class has no gradient checkpointing.
    ///
    /// # Errors
    /// When the scenario asks for it.
    pub fn refuse_checkpointing(&self, name: &str) -> Result<()> {
        if !self.checkpointing {
            return Ok(());
        }
        let problem = format!("transformers' {name} has no gradient checkpointing");
        Err(Error::new("training.checkpointing", problem, "use checkpointing = \"none\""))
    }
}

/// A model with its parameters in registration order.
#[derive(Debug)]
pub struct Built {
    /// The model.
    pub model: Box<dyn Model>,
    /// Its parameters; tied ones once.
    pub parameters: Vec<Tensor>,
    /// What is trained.
    pub task: Task,
    /// Numbers in quantized layers, which are not among the parameters.
    pub packed: u64,
}

/// Builds the scenario's model, its parameters allocated in the order `.to(device)` moves them.
///
/// # Errors
/// An unknown catalog id, `model_type` or family; sizes that are missing, too large or contradict one another.
pub fn build(cx: &Rc<Context>, scenario: &Scenario, rules: SdpaRules) -> Result<Built> {
    let training = &scenario.training;
    cx.set_loss_rules(loss::rules(scenario)?);
    let plan = Plan {
        input: scenario.input.clone(),
        task: scenario.model.task,
        attention: training.attention,
        checkpointing: training.checkpointing == Checkpointing::Full,
        adapters: training.lora.is_some(),
        rules,
    };
    let experts = expert_names(scenario.model.source.model_type().as_deref());
    let adapters = training.lora.clone().map(|lora| AdapterPlan { lora, experts });
    if let Some((key, problem, hint)) = adapters.as_ref().and_then(AdapterPlan::refusal) {
        return Err(Error::new(format!("training.lora.{key}"), problem, hint));
    }
    let scope = Scope::root(cx, weights_dtype(scenario), adapters, quantization(scenario));
    let model = match &scenario.model.source {
        ModelSource::Family { name, keys } => {
            if training.quantization != Quantization::None {
                return Err(Error::new(
                    "training.quantization",
                    format!("the family {name:?} is no model that transformers loads and bitsandbytes quantizes"),
                    "leave quantization out, or use a Hugging Face model",
                ));
            }
            if plan.checkpointing {
                return Err(Error::new(
                    "training.checkpointing",
                    format!("the family {name:?} has no gradient checkpointing"),
                    "use checkpointing = \"none\", or a Hugging Face model",
                ));
            }
            let config = Config::family(keys);
            match name.as_str() {
                "gat" => gat::build(&scope, &config, &plan)?,
                "mlp" => mlp::build(&scope, &config, &plan)?,
                "nanogpt" => nanogpt::build(&scope, &config, &plan)?,
                "nbeats" => nbeats::build(&scope, &config, &plan)?,
                other => torchvision::build(other, &scope, &config, &plan).ok_or_else(|| unknown_family(other))??,
            }
        }
        ModelSource::HuggingFace(map) => hugging_face(&scope, &Config::hugging_face(map), &plan)?,
        ModelSource::Catalog(id) => {
            let row = plimsoll_catalog::model(id).ok_or_else(|| {
                Error::new("model.catalog", format!("{id:?} is not in the catalog"), "see `plimsoll models`")
            })?;
            let map = serde_json::from_str(row.config).map_err(|e| {
                Error::new("model.catalog", format!("the catalog's entry {id:?} is broken: {e}"), "report it")
            })?;
            hugging_face(&scope, &Config::hugging_face(&map), &plan)?
        }
    };
    if training.lora.is_some() && scope.adapted() == 0 {
        return Err(Error::new(
            "training.lora.targets",
            "no linear of this model has one of these names",
            "name modules as the model does (`q_proj`, `c_attn`, ...) or use \"all-linear\"",
        ));
    }
    if let Some(name) = scope.unknown_saved() {
        return Err(Error::new(
            "training.lora.modules_to_save",
            format!("no module of this model is called {name:?}"),
            "name modules as the model does (`embed_tokens`, `lm_head`, `classifier`, ...)",
        ));
    }
    if let Some(path) = scope.untrainable() {
        return Err(Error::new(
            "training.lora.modules_to_save",
            format!("{path} is quantized, and a copy of it cannot be trained"),
            "save modules that are not quantized (embeddings, norms, the output head), or leave quantization out",
        ));
    }
    Ok(Built { model, parameters: scope.parameters(), task: scenario.model.task, packed: scope.packed() })
}

/// The dtype of what is not quantized. `prepare_model_for_kbit_training`, where it is called, casts all of that to
/// float32, whatever it was loaded in.
fn weights_dtype(scenario: &Scenario) -> DType {
    let training = &scenario.training;
    if training.quantization != Quantization::None {
        let cast = training.mode == Mode::Train && training.prepare_kbit;
        return if cast { DType::Float32 } else { loaded_dtype(training.precision) };
    }
    match training.precision {
        Precision::Fp32 | Precision::Fp16Amp | Precision::Bf16Amp => DType::Float32,
        Precision::Fp16 => DType::Float16,
        Precision::Bf16 => DType::BFloat16,
    }
}

/// The dtype a model that is quantized is loaded in (`dtype`, `bnb_4bit_compute_dtype`).
const fn loaded_dtype(precision: Precision) -> DType {
    match precision {
        Precision::Fp32 => DType::Float32,
        Precision::Fp16 | Precision::Fp16Amp => DType::Float16,
        Precision::Bf16 | Precision::Bf16Amp => DType::BFloat16,
    }
}

/// Which linears bitsandbytes replaces.
fn quantization(scenario: &Scenario) -> Option<QuantizationPlan> {
    let training = &scenario.training;
    let skipped: &[&str] = match scenario.model.source.model_type().as_deref() {
        // `_keep_in_fp32_modules`
        Some("t5") => &["wo"],
        // The module of the last parameter.
        Some("clip") => &["text_projection"],
        // A decoder's classifier has no bias: its weight is the last parameter.
        _ if scenario.model.task == Task::SequenceClassification => &["score"],
        _ => &[],
    };
    (training.quantization != Quantization::None).then(|| QuantizationPlan {
        quantization: training.quantization,
        compute: loaded_dtype(training.precision),
        skipped,
        map: SharedMap::default(),
    })
}

fn hugging_face(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    match config.model_type() {
        "llama" | "mistral" | "qwen2" | "qwen3" => llama::build(scope, config, plan),
        "gpt2" => gpt2::build(scope, config, plan),
        "bert" => bert::build(scope, config, plan),
        "roberta" => roberta::build(scope, config, plan),
        "distilbert" => distilbert::build(scope, config, plan),
        "deberta-v2" => deberta::build(scope, config, plan),
        "electra" => electra::build(scope, config, plan),
        "vit" => vit::build(scope, config, plan),
        "falcon" => falcon::build(scope, config, plan),
        "bloom" => bloom::build(scope, config, plan),
        "gptj" => gptj::build(scope, config, plan),
        "gpt_neox" => gpt_neox::build(scope, config, plan),
        "gemma" => gemma::build(scope, config, plan),
        "gemma2" | "gemma3_text" => gemma2::build(scope, config, plan),
        "olmo" => olmo::build(scope, config, plan),
        "olmo2" => olmo2::build(scope, config, plan),
        "olmoe" => olmoe::build(scope, config, plan),
        "phi" => phi::build(scope, config, plan),
        "phi3" => phi3::build(scope, config, plan),
        "qwen2_moe" | "qwen3_moe" => qwen_moe::build(scope, config, plan),
        "smollm3" => smollm3::build(scope, config, plan),
        "stablelm" => stablelm::build(scope, config, plan),
        "starcoder2" => starcoder2::build(scope, config, plan),
        "opt" => opt::build(scope, config, plan),
        "mixtral" => mixtral::build(scope, config, plan),
        "bart" => bart::build(scope, config, plan),
        "whisper" => whisper::build(scope, config, plan),
        "clip" => clip::build(scope, config, plan),
        "modernbert" => modernbert::build(scope, config, plan),
        "t5" => t5::build(scope, config, plan),
        "dinov2" => dinov2::build(scope, config, plan),
        "resnet" => resnet::build(scope, config, plan),
        "convnext" => convnext::build(scope, config, plan),
        "swin" => swin::build(scope, config, plan),
        _ if config.reads_like_llama() => llama::build(scope, config, plan),
        other => Err(Error::new(
            "model.hf.model_type",
            format!("{other:?} is not estimated yet"),
            format!("supported are {}", names(supported::MODEL_TYPES.iter().map(|m| m.name))),
        )),
    }
}

/// What a mixture's experts and router are called in adapters' targets, where peft translates them to parameters. It leaves
/// Qwen2-MoE alone, whose conversion has another name than its pattern (`_convert_peft_config_moe`).
fn expert_names(model_type: Option<&str>) -> Option<&'static ExpertNames> {
    const MIXTRAL: ExpertNames = ExpertNames { gate_up: ["w1", "w3"], down: "w2", router: "gate" };
    const QWEN: ExpertNames = ExpertNames { gate_up: ["gate_proj", "up_proj"], down: "down_proj", router: "gate" };
    match model_type {
        Some("mixtral") => Some(&MIXTRAL),
        Some("qwen3_moe" | "olmoe") => Some(&QWEN),
        _ => None,
    }
}

fn unknown_family(name: &str) -> Error {
    let hint = format!("supported are {}", names(supported::FAMILIES.iter().map(|f| f.name)));
    Error::new("model.family", format!("{name:?} is not estimated yet"), hint)
}

/// `a, b, c`.
fn names<'n>(list: impl Iterator<Item = &'n str>) -> String {
    list.collect::<Vec<_>>().join(", ")
}

fn unknown_activation(config: &Config<'_>, key: &str, name: &str) -> Error {
    config.error(
        key,
        format!("the activation {name:?} is not estimated yet"),
        format!("supported are {}", plimsoll_torch::nn::Activation::KNOWN.join(", ")),
    )
}
