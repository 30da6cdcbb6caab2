//! What is estimated today, in one place: widen these lists when the engine learns more.
//!
//! Everything a scenario may name but that is not in here is refused by name, never ignored. To be measured, a scenario
//! may name any Hugging Face model ([`super::Scenario::from_value_to_measure`]).

use serde_json::{Map, Value};

use super::{Inputs, Mode, Optimizer, OptimizerImpl, Task};

/// Modes that are estimated.
pub const MODES: &[Mode] = &[Mode::Train, Mode::Inference];

/// A Hugging Face `model_type` that is estimated.
#[derive(Clone, Copy, Debug)]
pub struct ModelType {
    /// As it stands in `config.json`.
    pub name: &'static str,
    /// What can be trained on it; the first is the default.
    pub tasks: &'static [Task],
    /// What one sample of its input is.
    pub inputs: Inputs,
    /// Whether it takes an attention mask.
    pub has_mask: bool,
    /// The config's keys that hold the longest sequence, in the order transformers looks at them; a key of a nested
    /// config is written with a dot, `text_config.max_position_embeddings`. Empty where a sample has no sequence.
    pub position_keys: &'static [&'static str],
    /// The longest sequence of a config that does not say, as transformers' config class has it.
    pub positions: u64,
    /// Whether positions are a table of parameters, so that a longer sequence cannot run at all.
    pub learned_positions: bool,
}

/// What decoders are trained for.
const DECODER: &[Task] = &[Task::CausalLm, Task::SequenceClassification];

/// A causal language model that reads tokens and a mask, and knows positions by rotation.
const fn rotary_decoder(name: &'static str, positions: u64) -> ModelType {
    ModelType {
        name,
        tasks: DECODER,
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        positions,
        learned_positions: false,
    }
}

/// A classifier of images.
const fn classifier(name: &'static str, inputs: Inputs) -> ModelType {
    ModelType {
        name,
        tasks: &[Task::ImageClassification],
        inputs,
        has_mask: false,
        position_keys: &[],
        positions: 0,
        learned_positions: false,
    }
}

/// Every `model_type` that is estimated. Defaults of `positions`: the config classes of transformers 5.17.
pub const MODEL_TYPES: &[ModelType] = &[
    ModelType {
        name: "llama",
        tasks: DECODER,
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        positions: 2048,
        learned_positions: false,
    },
    ModelType {
        name: "mistral",
        tasks: DECODER,
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        positions: 131_072,
        learned_positions: false,
    },
    ModelType {
        name: "qwen2",
        tasks: DECODER,
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        positions: 32_768,
        learned_positions: false,
    },
    ModelType {
        name: "qwen3",
        tasks: DECODER,
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        positions: 32_768,
        learned_positions: false,
    },
    ModelType {
        name: "gpt2",
        tasks: DECODER,
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings", "n_positions"],
        positions: 1024,
        learned_positions: true,
    },
    ModelType {
        name: "bert",
        tasks: &[Task::MaskedLm, Task::SequenceClassification],
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        positions: 512,
        learned_positions: true,
    },
    ModelType {
        name: "roberta",
        tasks: &[Task::MaskedLm, Task::SequenceClassification],
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        // 512 less the two that stand for no token.
        positions: 510,
        learned_positions: true,
    },
    ModelType {
        name: "distilbert",
        tasks: &[Task::MaskedLm, Task::SequenceClassification],
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        positions: 512,
        learned_positions: true,
    },
    ModelType {
        name: "electra",
        tasks: &[Task::MaskedLm, Task::SequenceClassification],
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        positions: 512,
        learned_positions: true,
    },
    ModelType {
        name: "deberta-v2",
        tasks: &[Task::MaskedLm, Task::SequenceClassification],
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        positions: 512,
        // Only where `position_biased_input` adds a table of them; the family looks for itself.
        learned_positions: false,
    },
    classifier("vit", Inputs::Image { key: "image_size", side: 224, fixed: true }),
    rotary_decoder("falcon", 2048),
    rotary_decoder("gpt_neox", 2048),
    rotary_decoder("gemma", 8192),
    rotary_decoder("gemma2", 8192),
    rotary_decoder("gemma3_text", 131_072),
    rotary_decoder("phi", 2048),
    rotary_decoder("phi3", 4096),
    rotary_decoder("starcoder2", 4096),
    rotary_decoder("stablelm", 4096),
    rotary_decoder("smollm3", 32_768),
    rotary_decoder("olmo", 2048),
    rotary_decoder("olmo2", 2048),
    rotary_decoder("mixtral", 131_072),
    ModelType { tasks: &[Task::CausalLm], ..rotary_decoder("olmoe", 4096) },
    rotary_decoder("qwen2_moe", 32_768),
    rotary_decoder("qwen3_moe", 32_768),
    // Biases instead of positions: nothing ends at 2048, the length it was trained with.
    ModelType { position_keys: &["seq_length"], ..rotary_decoder("bloom", 2048) },
    ModelType { learned_positions: true, ..rotary_decoder("opt", 2048) },
    // Its positions are rotary, but looked up in a table.
    ModelType {
        position_keys: &["max_position_embeddings", "n_positions"],
        learned_positions: true,
        ..rotary_decoder("gptj", 2048)
    },
    ModelType {
        name: "t5",
        tasks: &[Task::Seq2SeqLm],
        inputs: Inputs::EncoderDecoder,
        has_mask: true,
        position_keys: &["n_positions"],
        positions: 512,
        learned_positions: false,
    },
    ModelType {
        name: "bart",
        tasks: &[Task::Seq2SeqLm],
        inputs: Inputs::EncoderDecoder,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        positions: 1024,
        learned_positions: true,
    },
    ModelType {
        name: "whisper",
        tasks: &[Task::SpeechSeq2Seq],
        inputs: Inputs::Speech,
        has_mask: false,
        position_keys: &["max_target_positions"],
        positions: 448,
        learned_positions: true,
    },
    ModelType {
        name: "clip",
        tasks: &[Task::Contrastive],
        inputs: Inputs::TextAndImage { key: "vision_config.image_size", side: 224 },
        has_mask: false,
        position_keys: &["text_config.max_position_embeddings"],
        positions: 77,
        learned_positions: true,
    },
    classifier("dinov2", Inputs::Image { key: "image_size", side: 224, fixed: false }),
    classifier("resnet", Inputs::Image { key: "", side: 224, fixed: false }),
    classifier("convnext", Inputs::Image { key: "image_size", side: 224, fixed: false }),
    classifier("swin", Inputs::Image { key: "image_size", side: 224, fixed: false }),
    ModelType {
        name: "modernbert",
        tasks: &[Task::MaskedLm, Task::SequenceClassification],
        inputs: Inputs::Tokens,
        has_mask: true,
        position_keys: &["max_position_embeddings"],
        positions: 8192,
        learned_positions: false,
    },
];

/// One of our own families, described by keys beside `family`.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// As it stands in `model.family`.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// What can be trained on it; the first is the default.
    pub tasks: &'static [Task],
    /// What one sample of its input is.
    pub inputs: Inputs,
    /// Whether it takes an attention mask.
    pub has_mask: bool,
    /// The key of the longest sequence, where there is one.
    pub position_key: Option<&'static str>,
    /// Its own keys, in the order they are written.
    pub keys: &'static [FamilyKey],
}

/// One key beside `family`.
#[derive(Clone, Copy, Debug)]
pub struct FamilyKey {
    /// As it is written.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// What it holds, and its default.
    pub kind: FamilyKeyKind,
}

/// What a family's key holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FamilyKeyKind {
    /// A whole number from 1 to `most`.
    Count {
        /// When the key is missing.
        default: u64,
        /// The largest accepted.
        most: u64,
    },
    /// A probability, 0 <= p < 1.
    Fraction {
        /// When the key is missing.
        default: f64,
    },
    /// true or false.
    Flag {
        /// When the key is missing.
        default: bool,
    },
    /// One of these words.
    Word {
        /// When the key is missing; one of `words`.
        default: &'static str,
        /// Every word that is accepted.
        words: &'static [&'static str],
    },
}

impl FamilyKeyKind {
    /// What a key that is not given holds.
    pub fn default(self) -> Value {
        match self {
            Self::Count { default, .. } => default.into(),
            Self::Fraction { default } => default.into(),
            Self::Flag { default } => default.into(),
            Self::Word { default, .. } => default.into(),
        }
    }
}

const WIDTH_MOST: u64 = 1 << 20;

const fn count(name: &'static str, about: &'static str, default: u64, most: u64) -> FamilyKey {
    FamilyKey { name, about, kind: FamilyKeyKind::Count { default, most } }
}

/// Every family of our own that is estimated.
///
/// Defaults: `mlp` is a round example; `nanogpt` has the settings of Karpathy's GPT-2 124M run
/// (`config/train_gpt2.py` in karpathy/nanoGPT); `nbeats` is the generic network of Oreshkin et al. 2020, 30 blocks of
/// four 512-wide layers, with theta, backcast and horizon as a round example.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "mlp",
        about: "linear layers with ReLU between them",
        tasks: &[Task::Classification],
        inputs: Inputs::Features,
        has_mask: false,
        position_key: None,
        keys: &[
            count("d_in", "features of a sample", 1024, WIDTH_MOST),
            count("hidden", "width of the hidden layers", 4096, WIDTH_MOST),
            count("layers", "linear layers, the last one included", 4, 1 << 11),
            count("d_out", "classes", 10, WIDTH_MOST),
        ],
    },
    Family {
        name: "nanogpt",
        about: "Karpathy's GPT",
        tasks: &[Task::CausalLm],
        inputs: Inputs::Tokens,
        has_mask: false,
        position_key: Some("block_size"),
        keys: &[
            count("n_layer", "blocks", 12, 1 << 10),
            count("n_head", "attention heads", 12, 1 << 12),
            count("n_embd", "width", 768, WIDTH_MOST),
            count("vocab_size", "tokens in the vocabulary", 50_304, 1 << 24),
            count("block_size", "longest sequence", 1024, super::limits::SEQ),
            FamilyKey {
                name: "dropout",
                about: "probability of every dropout",
                kind: FamilyKeyKind::Fraction { default: 0.0 },
            },
            FamilyKey {
                name: "bias",
                about: "whether linears and norms have a bias",
                kind: FamilyKeyKind::Flag { default: false },
            },
        ],
    },
    Family {
        name: "nbeats",
        about: "generic N-BEATS blocks in a row",
        tasks: &[Task::Forecasting],
        inputs: Inputs::Features,
        has_mask: false,
        position_key: None,
        keys: &[
            count("stacks", "blocks in a row", 30, 1 << 9),
            count("layers", "linear layers in a block", 4, 1 << 5),
            count("width", "width of a block's layers", 512, WIDTH_MOST),
            count("theta", "expansion coefficients", 32, WIDTH_MOST),
            count("backcast", "past time steps", 96, WIDTH_MOST),
            count("horizon", "future time steps", 24, WIDTH_MOST),
        ],
    },
    Family {
        name: "gat",
        about: "dense graph attention, two layers",
        tasks: &[Task::NodeClassification],
        inputs: Inputs::Graph { nodes: 2708 },
        has_mask: false,
        position_key: None,
        keys: &[
            count("n_feat", "features per node", 1433, WIDTH_MOST),
            count("n_hid", "width of a head", 8, 1 << 16),
            count("n_heads", "attention heads", 8, 1 << 10),
            count("n_class", "classes", 7, WIDTH_MOST),
            FamilyKey {
                name: "dropout",
                about: "probability of every dropout",
                kind: FamilyKeyKind::Fraction { default: 0.6 },
            },
        ],
    },
    Family {
        name: "resnet",
        about: "torchvision's ResNets",
        tasks: &[Task::ImageClassification],
        inputs: Inputs::TORCHVISION,
        has_mask: false,
        position_key: None,
        keys: &[
            FamilyKey {
                name: "variant",
                about: "which of them",
                kind: FamilyKeyKind::Word {
                    default: "resnet50",
                    words: &[
                        "resnet18",
                        "resnet34",
                        "resnet50",
                        "resnet101",
                        "resnet152",
                        "resnext50_32x4d",
                        "resnext101_32x8d",
                        "resnext101_64x4d",
                        "wide_resnet50_2",
                        "wide_resnet101_2",
                    ],
                },
            },
            count("num_classes", "classes", 1000, WIDTH_MOST),
        ],
    },
    Family {
        name: "convnext",
        about: "torchvision's ConvNeXts",
        tasks: &[Task::ImageClassification],
        inputs: Inputs::TORCHVISION,
        has_mask: false,
        position_key: None,
        keys: &[
            FamilyKey {
                name: "variant",
                about: "which of them",
                kind: FamilyKeyKind::Word {
                    default: "convnext_tiny",
                    words: &["convnext_tiny", "convnext_small", "convnext_base", "convnext_large"],
                },
            },
            count("num_classes", "classes", 1000, WIDTH_MOST),
        ],
    },
    Family {
        name: "swin",
        about: "torchvision's Swin Transformers",
        tasks: &[Task::ImageClassification],
        inputs: Inputs::TORCHVISION,
        has_mask: false,
        position_key: None,
        keys: &[
            FamilyKey {
                name: "variant",
                about: "which of them",
                kind: FamilyKeyKind::Word { default: "swin_t", words: &["swin_t", "swin_s", "swin_b"] },
            },
            count("num_classes", "classes", 1000, WIDTH_MOST),
        ],
    },
];

/// The `model_type` of this name.
pub fn model_type(name: &str) -> Option<&'static ModelType> {
    MODEL_TYPES.iter().find(|m| m.name == name)
}

/// The listed type that an unlisted one is estimated as: Llama, for a causal language model whose config names all of a
/// decoder's sizes and no experts. Anything else has no stand-in.
pub fn stand_in(config: &Map<String, Value>) -> Option<&'static ModelType> {
    const SIZES: [&str; 5] =
        ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"];
    let sizes = SIZES.iter().all(|key| config.get(*key).is_some_and(Value::is_u64));
    let experts = config.keys().any(|key| key.contains("expert"));
    let architectures = config.get("architectures").and_then(Value::as_array);
    let causal = architectures
        .is_some_and(|list| list.iter().filter_map(Value::as_str).any(|name| name.ends_with("ForCausalLM")));
    let unlisted = config.get("model_type").and_then(Value::as_str).is_some_and(|name| model_type(name).is_none());
    if sizes && causal && unlisted && !experts { model_type("llama") } else { None }
}

/// The family of this name.
pub fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.name == name)
}

/// Which implementations an optimizer has; the first is the default.
pub const fn implementations(optimizer: Optimizer) -> &'static [OptimizerImpl] {
    match optimizer {
        Optimizer::Adafactor | Optimizer::AdamW8bit => &[OptimizerImpl::ForLoop],
        Optimizer::Lion => &[OptimizerImpl::ForLoop, OptimizerImpl::Foreach, OptimizerImpl::Fused],
        _ => OptimizerImpl::ALL,
    }
}
