//! Modules, written the way their PyTorch and transformers originals read.

mod activation;
mod attention;
mod bidirectional_mask;
mod embedding;
mod encoder_attention;
mod linear;
mod lora;
mod mask;
mod norm;
mod rope;
mod scope;

pub use activation::Activation;
pub use attention::AttentionCore;
pub use bidirectional_mask::{bidirectional_mask, sliding_window_bidirectional_mask};
pub use embedding::Embedding;
pub use encoder_attention::EncoderAttention;
pub use linear::{Conv1D, Linear};
pub use mask::{causal_mask, decoder_causal_mask, sliding_window_causal_mask};
pub use norm::{LayerNorm, RmsNorm, T5LayerNorm};
pub use rope::{RotaryEmbedding, apply_rotary_pos_emb, apply_rotary_pos_emb_float};
pub use scope::{AdapterPlan, Scope};
