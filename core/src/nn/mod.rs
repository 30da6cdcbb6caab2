//! Modules, written the way their PyTorch and transformers originals read.

mod activation;
mod attention;
mod bidirectional;
mod conv;
mod embedding;
mod linear;
mod lora;
mod mask;
mod norm;
mod rope;
mod scope;

pub use activation::Activation;
pub use attention::AttentionCore;
pub use bidirectional::{BidirectionalAttention, bidirectional_mask};
pub use conv::{BatchNorm2d, Conv2d};
pub use embedding::Embedding;
pub use linear::{Conv1D, Linear};
pub use mask::{causal_mask, sliding_window_causal_mask};
pub use norm::{LayerNorm, RmsNorm};
pub use rope::{RotaryEmbedding, apply_rotary_pos_emb};
pub use scope::{AdapterPlan, Scope};
