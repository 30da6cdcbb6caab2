//! Modules, written the way their PyTorch and transformers originals read.

mod activation;
mod alibi;
mod attention;
mod bidirectional;
mod conv;
mod embedding;
mod experts;
mod gated_mlp;
mod linear;
mod lora;
mod mask;
mod norm;
mod rope;
mod scope;

pub use activation::Activation;
pub use alibi::alibi;
pub use attention::AttentionCore;
pub use bidirectional::{BidirectionalAttention, bidirectional_mask};
pub use conv::{BatchNorm2d, Conv2d};
pub use embedding::Embedding;
pub use experts::{Experts, Router, Scores};
pub use gated_mlp::GatedMlp;
pub use linear::{Conv1D, Linear};
pub use mask::{causal_mask, sliding_window_causal_mask};
pub use norm::{GemmaRmsNorm, LayerNorm, LayerNormPerHead, Norm, PlainLayerNorm, RmsNorm, WideRmsNorm};
pub use rope::{
    RotaryEmbedding, apply_partial_rotary_pos_emb, apply_rotary_pos_emb, apply_rotary_pos_emb_fp32,
    apply_rotary_pos_emb_phi3,
};
pub use scope::{AdapterPlan, Scope};
