//! `[training.lora]`: low-rank adapters of peft.

use plimsoll_ground::Result;
use serde_json::{Value, json};

use super::lever::{Field, Group, Kind, Lever, Near, Written, levers, module_names};
use super::{Training, limits};

levers! {
    /// `[training.lora]`: low-rank adapters of peft on a frozen base, alpha = 2 x rank. Where nothing is said of them, as
    /// peft's `LoraConfig` has it, but on every linear layer.
    pub struct Lora = "training.lora", lora of Training {
        /// Rank of the adapters.
        pub rank: u64 = 8 => {
            link: "lora",
            kind: Kind::Count { most: limits::RANK },
            label: "Rank",
            help: "Alpha is twice this",
            group: Group::Adapters,
            near: Near::octaves(0.5, 6.0),
        }
        /// Which linear layers carry one.
        pub targets: LoraTargets = LoraTargets::AllLinear => {
            link: "lora_targets",
            label: "Targets",
            help: "all-linear, or module names such as q_proj, v_proj",
            group: Group::Adapters,
            near: Near::unlike(1.0),
        }
        /// Dropout on the adapter's input, 0 <= p < 1.
        pub dropout: f64 = 0.0 => {
            link: "lora_dropout",
            label: "Dropout",
            help: "On the adapter's input, 0 to below 1",
            group: Group::Adapters,
            near: Near::unlike(0.5),
        }
        /// Whether the adapter learns the weight's magnitude too (`use_dora`).
        pub dora: bool = false => {
            link: "dora",
            label: "DoRA",
            help: "Learns each weight's magnitude too; its norm is computed from the whole weight at every forward",
            group: Group::Adapters,
            written: Written::WhereItSays,
            near: Near::unlike(1.5),
        }
        /// Whether peft keeps the adapters of a base in 16 bits in float32 (`autocast_adapter_dtype`); else they are in the
        /// base's dtype, with their gradients and their optimizer's states.
        pub autocast_adapter_dtype: bool = true => {
            link: "lora_float32",
            label: "Float32 adapters",
            help: "autocast_adapter_dtype: adapters of a base in 16 bits stay in float32",
            group: Group::Adapters,
            written: Written::WhereItSays,
            near: Near::unlike(1.0),
        }
        /// Modules that are trained whole, in a copy of their own (`modules_to_save`); names as peft matches them.
        pub modules_to_save: Vec<String> = Vec::new() => {
            link: "lora_save",
            label: "Modules to save",
            help: "Trained whole beside the adapters: module names such as embed_tokens, lm_head",
            otherwise: "none",
            group: Group::Adapters,
            written: Written::WhereItSays,
            near: Near::unlike(2.0),
        }
    }
}

/// Which linear layers carry an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoraTargets {
    /// `"all-linear"`: every linear but the output head.
    AllLinear,
    /// Module names as peft matches them: the last part of the dotted path.
    Names(Vec<String>),
}

/// The linears of most decoders' attention.
pub(crate) const ATTENTION: [&str; 4] = ["q_proj", "k_proj", "v_proj", "o_proj"];

/// The word for every linear layer.
pub(crate) const ALL_LINEAR: &str = "all-linear";

impl Field for LoraTargets {
    const KIND: Kind = Kind::Names { all: Some(ALL_LINEAR), example: &["q_proj", "v_proj"] };

    fn read(lever: &Lever, value: &Value) -> Result<Self> {
        match value {
            Value::String(word) if word == ALL_LINEAR => Ok(Self::AllLinear),
            list => module_names(lever, list, "or \"all-linear\"").map(Self::Names),
        }
    }

    fn write(&self) -> Option<Value> {
        Some(match self {
            Self::AllLinear => json!(ALL_LINEAR),
            Self::Names(names) => json!(names),
        })
    }
}
