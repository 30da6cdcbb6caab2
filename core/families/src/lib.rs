//! Architectures, one file a family, written the way the original forward reads.

#![forbid(unsafe_code)]
// When a tensor is dropped is what the ledger says: nothing is dropped where one reads over it.
#![warn(let_underscore_drop)]

mod architecture;
mod attend;
mod attribute_map;
mod bart;
mod bert;
mod bert_encoder;
mod bloom;
mod causal_lm;
mod checkpointed;
mod classification;
mod clip;
mod config;
mod convnext;
mod deberta;
mod deberta_attention;
mod deberta_head;
mod decoder;
mod decoder_head;
mod decoder_only;
mod deepseek;
mod dinov2;
mod distilbert;
mod electra;
mod falcon;
mod fused_mlp;
mod gat;
mod gated_attend;
mod gated_delta_net;
mod gemma;
mod gemma2;
mod gemma4;
mod gemma4_attend;
mod gemma4_moe;
mod gemma4_shared;
mod glm;
mod glm4_moe;
mod gpt2;
mod gpt_neo;
mod gpt_neox;
mod gpt_oss;
mod gptj;
mod gptj_attend;
mod heads;
mod image_batch;
mod latent_attention;
mod linear_memory;
mod llama;
mod llama4;
mod llama4_moe;
mod loss;
mod mixtral;
mod mixture;
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
mod qwen3_5;
mod qwen3_next;
mod qwen_moe;
mod qwen_vl;
mod resnet;
mod roberta;
mod rope_index;
mod seq2seq;
mod seq2seq_layer;
mod shared_moe;
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
mod turns;

mod vision_tower;
mod vit;
mod whisper;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use plimsoll_catalog::families::Architecture;
use plimsoll_catalog::software::Rules;
use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{
    Attention, BaseDtype, Checkpointing, Family, Input, Kernels, Mode, QuantStorage, Quantization, Scenario, Task,
    Trainer, Training,
};
use plimsoll_torch::Batch;
use plimsoll_torch::generate::Generate;
use plimsoll_torch::nn::{AdapterPlan, QuantizationPlan, Scope, ShardPlan, Sharded};
use plimsoll_torch::ops::{SdpaRules, SharedMap};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};

pub use config::Config;
pub use loss::{in_full, smoothed};

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
    /// loss's place. What it remembers where it is asked to, the caller takes out of the context.
    fn forward(&self, batch: &Batch) -> Output;

    /// What the model keeps of a forward until the next one, handed over: a later micro-batch may be a copy of it.
    fn kept(&self) -> Vec<Tensor> {
        Vec::new()
    }

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
    /// Whether the forward in training fills a cache of keys and values.
    pub use_cache: bool,
    /// Whether the base is frozen under adapters.
    pub adapters: bool,
    /// Which attention kernels the card has.
    pub rules: SdpaRules,
    /// Whether nanoGPT's own script runs the model as its file has it.
    pub published: bool,
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

/// A model with its parameters in registration order.
#[derive(Debug)]
pub struct Built {
    /// The model.
    pub model: Box<dyn Model>,
    /// Its parameters; tied ones once.
    pub parameters: Vec<Tensor>,
    /// The same with the packed weights and the biases of quantized linears: what `model.parameters()` lists. Who wraps the
    /// model takes it: a bias lives no longer than its linear wants it.
    pub listed: RefCell<Vec<Tensor>>,
    /// What is trained.
    pub task: Task,
    /// Numbers in quantized layers, which are not among the parameters.
    pub packed: u64,
    /// Whether the model computes its loss within its own forward, as those of transformers do.
    pub computes_loss: bool,
    /// The parameters that are cut over several cards, where any are.
    pub sharded: Vec<Sharded>,
    /// Modules that use a parameter of another one, where they are cut.
    pub sharing: Vec<(ModuleId, Tensor)>,
    /// Modules that DeepSpeed gathers with all that lies in them.
    pub leaves: Vec<ModuleId>,
}

impl Built {
    /// Parameters that are trained. Of those that are cut the shard says it: beside one that is trained others may take a
    /// gradient as well.
    pub fn trained(&self) -> impl Iterator<Item = &Tensor> {
        let frozen = self.sharded.iter().filter(|p| !p.shard.requires_grad());
        let frozen: BTreeSet<u32> = frozen.map(|p| p.whole.storage_id()).collect();
        self.parameters.iter().filter(move |p| p.requires_grad() && !frozen.contains(&p.storage_id()))
    }
}

/// Builds the scenario's model, its parameters allocated in the order `.to(device)` moves them.
///
/// # Errors
/// A model or a recipe that is not estimated; sizes that are missing, too large or contradict one another.
///
/// `shards` says how its parameters are cut over several cards, where they are.
pub fn build(cx: &Rc<Context>, scenario: &Scenario, rules: SdpaRules, shards: Option<ShardPlan>) -> Result<Built> {
    let training = &scenario.training;
    let family = scenario.estimated()?;
    cx.set_loss_rules(loss::rules(scenario, family));
    cx.set_liger(family.liger.filter(|_| training.kernels == Kernels::Liger));
    cx.set_checkpoints(training.checkpoint_every, training.checkpointing == Checkpointing::Selective);
    cx.set_reentrant(training.checkpointing == Checkpointing::Reentrant);
    let plan = Plan {
        input: scenario.input.clone(),
        task: scenario.model.task,
        attention: training.attention,
        checkpointing: training.checkpointing != Checkpointing::None,
        use_cache: training.use_cache,
        published: training.trainer == Trainer::NanoGpt,
        adapters: training.lora.is_some(),
        rules,
    };
    let adapters = training.lora.clone().map(|lora| {
        // `_cast_module_mixed_precision` of DeepSpeed's engine.
        let cast = scenario.parallel.strategy.is_zero().then(|| weights_dtype(scenario));
        AdapterPlan { lora, cast, experts: scenario.experts() }
    });
    let scope = Scope::root(cx, weights_dtype(scenario), adapters, quantization(scenario, family), shards);
    let keys =
        scenario.model.source.keys().ok_or_else(|| {
            Error::new("model.catalog", "there is no such model in the catalog", "see `plimsoll models`")
        })?;
    let config =
        if family.is_own() { Config::family(keys) } else { Config::hugging_face(keys, Rules::of(&scenario.software)) };
    let model = architecture::build(listed(family)?, &scope, &config, &plan)?;
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
    Ok(Built {
        model,
        parameters: scope.parameters(),
        listed: RefCell::new(scope.all_parameters()),
        task: scenario.model.task,
        packed: scope.packed(),
        computes_loss: !family.is_own(),
        sharded: scope.take_sharded(),
        sharing: scope.take_sharing(),
        leaves: scope.take_leaves(),
    })
}

/// Whose forward runs.
fn listed(family: &Family) -> Result<Architecture> {
    family.architecture.ok_or_else(|| {
        Error::new("model", "the engine does not estimate this model yet", "measure it with plimsoll probe")
    })
}

/// The dtype of what is not quantized. `prepare_model_for_kbit_training`, where it is called, casts all of that to
/// float32, whatever it was loaded in; DeepSpeed's engine casts it to its own afterwards.
fn weights_dtype(scenario: &Scenario) -> DType {
    let training = &scenario.training;
    let quantized = training.quantization != Quantization::None;
    let prepared = quantized && training.mode == Mode::Train && training.prepare_kbit;
    let cast = prepared && !scenario.parallel.strategy.is_zero();
    if cast { DType::Float32 } else { loaded_dtype(training) }
}

/// The dtype the model is loaded in (`dtype`, `bnb_4bit_compute_dtype`).
pub fn loaded_dtype(training: &Training) -> DType {
    match training.loaded() {
        // It never is that: what goes with the precision is said by its own name.
        BaseDtype::Precision | BaseDtype::Float32 => DType::Float32,
        BaseDtype::Float16 => DType::Float16,
        BaseDtype::Bfloat16 => DType::BFloat16,
    }
}

/// What four-bit weights are packed in (`bnb_4bit_quant_storage`).
pub const fn packed_dtype(training: &Training) -> DType {
    match training.quant_storage {
        QuantStorage::Uint8 => DType::UInt8,
        QuantStorage::Float16 => DType::Float16,
        QuantStorage::Bfloat16 => DType::BFloat16,
        QuantStorage::Float32 => DType::Float32,
    }
}

/// Which linears bitsandbytes replaces.
fn quantization(scenario: &Scenario, family: &Family) -> Option<QuantizationPlan> {
    let training = &scenario.training;
    (training.quantization != Quantization::None).then(|| QuantizationPlan {
        quantization: training.quantization,
        storage: packed_dtype(training),
        compute: loaded_dtype(training),
        skipped: family.unquantized(scenario.model.task, Rules::of(&scenario.software)),
        map: SharedMap::default(),
    })
}

fn unknown_activation(config: &Config<'_>, key: &str, name: &str) -> Error {
    config.error(
        key,
        format!("the activation {name:?} is not estimated yet"),
        format!("supported are {}", plimsoll_torch::nn::Activation::KNOWN.join(", ")),
    )
}
