//! What Liger's kernels take the place of in a model (`apply_liger_kernel_to_*` of liger-kernel 0.8.5,
//! `transformers/monkey_patch.py`), given one that is there already, as transformers' Trainer does it.

use super::Family;

/// Names of modules, in lists that models have in common.
type Norms = &'static [&'static [&'static str]];

/// What is replaced of one architecture.
#[derive(Debug, PartialEq, Eq)]
pub struct Liger {
    /// Whether `apply_rotary_pos_emb` is.
    pub rope: bool,
    /// What takes the place of the feed-forward's gated activation, whatever the config calls that; `None`: it stays.
    pub gate: Option<LigerGate>,
    /// Norms that write the gradient of what they are given over that of what they made (`in_place`), by the name of their module.
    in_place: Norms,
    /// Norms that make another.
    apart: Norms,
}

/// A gated activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LigerGate {
    /// `LigerSiLUMulFunction`.
    Silu,
    /// `LigerGELUMulFunction`.
    Gelu,
}

impl LigerGate {
    /// What it is asked for by (`liger_kernel_config`).
    pub const fn key(self) -> &'static str {
        match self {
            Self::Silu => "swiglu",
            Self::Gelu => "geglu",
        }
    }
}

impl Liger {
    /// Whether the norm `name` is replaced, and if so, whether it writes over the gradient.
    pub fn norm(&self, name: &str) -> Option<bool> {
        let among = |norms: Norms| norms.iter().any(|list| list.contains(&name));
        (among(self.in_place) || among(self.apart)).then(|| among(self.in_place))
    }
}

/// The last one.
const LAST: &[&str] = &["norm"];
/// Before attention and before the feed-forward.
const BEFORE: &[&str] = &["input_layernorm", "post_attention_layernorm"];
/// Around the feed-forward.
const AROUND: &[&str] = &["pre_feedforward_layernorm", "post_feedforward_layernorm"];
/// Of queries and keys.
const HEADS: &[&str] = &["q_norm", "k_norm"];

/// Llama's and its relatives'.
pub const LLAMA: Liger = Liger { rope: true, gate: Some(LigerGate::Silu), in_place: &[LAST, BEFORE], apart: &[] };

/// As Llama's, with Gemma's activation.
pub const GEMMA: Liger = Liger { gate: Some(LigerGate::Gelu), ..LLAMA };

/// With norms of queries and keys.
pub const QWEN3: Liger = Liger { in_place: &[LAST, BEFORE, HEADS], ..LLAMA };

/// As Qwen3's, but for the activation (`swiglu=False` where nobody asks for it).
pub const QWEN3_VL: Liger = Liger { gate: None, ..QWEN3 };

/// As Llama's; its experts stay as they are.
pub const GPT_OSS: Liger = Liger { gate: None, ..LLAMA };

/// Norms behind attention and feed-forward as well, whose gradient is needed once more.
pub const GEMMA2: Liger = Liger { in_place: &[], apart: &[LAST, BEFORE, AROUND], ..GEMMA };

/// And of queries and keys.
pub const GEMMA3: Liger = Liger { apart: &[LAST, BEFORE, AROUND, HEADS], ..GEMMA2 };

/// Those of queries and keys stay as they are.
pub const OLMO2: Liger =
    Liger { in_place: &[LAST], apart: &[&["post_attention_layernorm", "post_feedforward_layernorm"]], ..LLAMA };

/// Its positions are not turned by Liger.
pub const QWEN3_5: Liger = Liger { rope: false, in_place: &[], apart: &[LAST, BEFORE, HEADS], ..LLAMA };

/// Nor are its.
pub const GLM4: Liger = Liger {
    rope: false,
    in_place: &[],
    apart: &[LAST, BEFORE, &["post_self_attn_layernorm", "post_mlp_layernorm"]],
    ..LLAMA
};

impl Family {
    /// The same, with what Liger replaces of it.
    pub(super) const fn liger(self, liger: &'static Liger) -> Self {
        Self { liger: Some(liger), ..self }
    }
}
