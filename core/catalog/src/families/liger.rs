//! What Liger's kernels take the place of in a model (`apply_liger_kernel_to_*` of liger-kernel 0.8.5,
//! `transformers/monkey_patch.py`), given one that is there already, as transformers' Trainer does it.

use super::Family;

/// What is replaced of one architecture.
#[derive(Debug, PartialEq, Eq)]
pub struct Liger {
    /// Whether `apply_rotary_pos_emb` is.
    pub rope: bool,
    /// Whether the gated activation of the feed-forward is.
    pub gated: bool,
    /// Which norms are, by the name of their module, and whether the gradient of what they are given is written over that of what they
    /// made (`in_place`).
    pub norms: &'static [(&'static str, bool)],
}

impl Liger {
    /// Whether the norm `name` is replaced, and if so, whether it writes over the gradient.
    pub fn norm(&self, name: &str) -> Option<bool> {
        self.norms.iter().find(|(norm, _)| *norm == name).map(|(_, in_place)| *in_place)
    }
}

/// Norms before attention and before the feed-forward, and the last one.
pub const LLAMA: Liger = Liger {
    rope: true,
    gated: true,
    norms: &[("norm", true), ("input_layernorm", true), ("post_attention_layernorm", true)],
};

/// And those of queries and keys.
pub const QWEN3: Liger = Liger {
    rope: true,
    gated: true,
    norms: &[
        ("norm", true),
        ("input_layernorm", true),
        ("post_attention_layernorm", true),
        ("q_norm", true),
        ("k_norm", true),
    ],
};

/// Norms behind attention and feed-forward as well: what comes back is needed once more.
pub const GEMMA2: Liger = Liger {
    rope: true,
    gated: true,
    norms: &[
        ("norm", false),
        ("input_layernorm", false),
        ("post_attention_layernorm", false),
        ("pre_feedforward_layernorm", false),
        ("post_feedforward_layernorm", false),
    ],
};

/// And those of queries and keys.
pub const GEMMA3: Liger = Liger {
    rope: true,
    gated: true,
    norms: &[
        ("norm", false),
        ("input_layernorm", false),
        ("post_attention_layernorm", false),
        ("pre_feedforward_layernorm", false),
        ("post_feedforward_layernorm", false),
        ("q_norm", false),
        ("k_norm", false),
    ],
};

/// Those of queries and keys stay as they are.
pub const OLMO2: Liger = Liger {
    rope: true,
    gated: true,
    norms: &[("norm", true), ("post_attention_layernorm", false), ("post_feedforward_layernorm", false)],
};

/// As Qwen3's, without the gated activation (`swiglu=False` where nobody asks for it).
pub const QWEN3_VL: Liger = Liger { gated: false, ..QWEN3 };

/// As Llama's; its experts stay as they are.
pub const GPT_OSS: Liger = Liger { gated: false, ..LLAMA };

/// Its positions are not turned by Liger.
pub const QWEN3_5: Liger = Liger {
    rope: false,
    gated: true,
    norms: &[
        ("norm", false),
        ("input_layernorm", false),
        ("post_attention_layernorm", false),
        ("q_norm", false),
        ("k_norm", false),
    ],
};

/// Its positions are not turned by Liger.
pub const GLM4: Liger = Liger {
    rope: false,
    gated: true,
    norms: &[
        ("norm", false),
        ("input_layernorm", false),
        ("post_attention_layernorm", false),
        ("post_self_attn_layernorm", false),
        ("post_mlp_layernorm", false),
    ],
};

impl Family {
    /// The same, with what Liger replaces of it.
    pub(super) const fn liger(self, liger: &'static Liger) -> Self {
        Self { liger: Some(liger), ..self }
    }
}
