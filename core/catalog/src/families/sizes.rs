//! The sizes of a `config.json` that people change by hand.

/// One size that can be edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The key in the config, as this `model_type` spells it.
    pub key: &'static str,
    /// What people call it.
    pub label: &'static str,
    /// One line on what it is.
    pub help: &'static str,
    /// The largest a field takes; whether the sizes agree with one another the engine says.
    pub most: u64,
    /// Whether the config may leave it out.
    pub optional: bool,
}

const fn size(key: &'static str, label: &'static str, help: &'static str, most: u64, optional: bool) -> Size {
    Size { key, label, help, most, optional }
}

/// Most numbers in a row or a vocabulary: 2^24.
const WIDE: u64 = 1 << 24;

/// As Llama's config has them, and most others.
pub(super) const COMMON: &[Size] = &[
    size("hidden_size", "Hidden size", "Width of the residual stream.", WIDE, false),
    size("num_hidden_layers", "Layers", "Transformer blocks.", 4096, false),
    size("num_attention_heads", "Heads", "Query heads; must divide the hidden size.", WIDE, false),
    size("num_key_value_heads", "KV heads", "Key and value heads; must divide the heads.", WIDE, true),
    size("intermediate_size", "Intermediate", "Width inside the MLP.", WIDE, false),
    size("vocab_size", "Vocabulary", "Tokens; sets the size of the logits.", WIDE, false),
];

/// As GPT-2's config has them.
pub(super) const GPT2: &[Size] = &[
    size("n_embd", "Hidden size", "Width of the residual stream.", WIDE, false),
    size("n_layer", "Layers", "Transformer blocks.", 4096, false),
    size("n_head", "Heads", "Attention heads; must divide the hidden size.", WIDE, false),
    size("n_inner", "Intermediate", "Width inside the MLP; empty is four times the hidden size.", WIDE, true),
    size("n_positions", "Positions", "Longest sequence.", WIDE, false),
    size("vocab_size", "Vocabulary", "Tokens; sets the size of the logits.", WIDE, false),
];

/// As GPT-Neo's config has them.
pub(super) const GPT_NEO: &[Size] = &[
    size("hidden_size", "Hidden size", "Width of the residual stream.", WIDE, false),
    size("num_layers", "Layers", "Transformer blocks.", 4096, false),
    size("num_heads", "Heads", "Attention heads; must divide the hidden size.", WIDE, false),
    size("intermediate_size", "Intermediate", "Width inside the MLP; empty is four times the hidden size.", WIDE, true),
    size("max_position_embeddings", "Positions", "Longest sequence; a mask of its square in every layer.", WIDE, false),
    size("vocab_size", "Vocabulary", "Tokens; sets the size of the logits.", WIDE, false),
];
