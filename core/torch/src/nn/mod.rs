//! Modules, written the way their PyTorch and transformers originals read.

mod activation;
mod adapter_plan;
mod alibi;
mod attention;
mod bidirectional_mask;
mod channel_norm;
mod chunked_mask;
mod complex_rope;
mod conv;
mod delta_rule_by_rows;
mod drop_path;
mod embedding;
mod encoder_attention;
mod expert_list;
mod experts;
mod gated_delta_rule;
mod gated_mlp;
mod group_router;
pub mod kv_cache;
mod layer_rope;
mod linear;
mod looped_experts;
mod lora;
mod mask;
mod module_list;
mod norm;
mod older_mask;
mod parameter_adapter;
mod picked_experts;
mod quantization_plan;
mod quantized;
mod rope;
mod scope;
mod shards;

pub use activation::Activation;
pub use adapter_plan::AdapterPlan;
pub use alibi::{alibi, alibi_of_all, rounded_alibi};
pub use attention::{AttentionCore, Probabilities, repeat_kv};
pub use bidirectional_mask::{bidirectional_mask, sliding_window_bidirectional_mask};
pub use channel_norm::ConvNextLayerNorm;
pub use complex_rope::{apply_rotary_emb, apply_rotary_emb_before_heads};
pub use conv::{BatchNorm2d, Conv1d, Conv2d};
pub use drop_path::DropPath;
pub use embedding::Embedding;
pub use encoder_attention::EncoderAttention;
pub use expert_list::{ExpertList, LinearRouter, Visits};
pub use experts::{Experts, Router, Routing, Scores};
pub use gated_delta_rule::{DeltaStates, chunk_gated_delta_rule, recurrent_gated_delta_rule, repeated_heads};
pub use gated_mlp::GatedMlp;
pub use group_router::{Choice, GroupRouter, RouterSizes};
pub use layer_rope::{Angles, LayerAngles, LayerRotary};
pub use linear::{Conv1D, Linear};
pub use looped_experts::LoopedExperts;
pub use mask::{
    additive, causal_mask, chunked_causal_mask, decoder_causal_mask, gpt2_causal_mask, late_causal_mask,
    recurrent_mask, sliding_window_causal_mask, whole_causal_mask, windowless_causal_mask,
};
pub use module_list::ModuleList;
pub use norm::{
    GemmaRmsNorm, L2Norm, LastRmsNorm, LayerNorm, LayerNorm2d, LayerNormPerHead, Norm, PlainLayerNorm, PowerRmsNorm,
    RmsNorm, T5LayerNorm, WideRmsNorm,
};
pub use older_mask::{
    extended_decoder_mask, inverted, older_causal_mask, older_cross_mask, older_hybrid_mask, older_hybrid_window,
    older_padding_mask, older_windowed_mask, two_part_causal_mask, whole_two_part_mask,
};
pub use picked_experts::PickedExperts;
pub use quantization_plan::QuantizationPlan;
pub use rope::{
    Axes, RotaryEmbedding, apply_neighbours_rotary_pos_emb, apply_partial_rotary_pos_emb, apply_rotary_pos_emb,
    apply_rotary_pos_emb_float, apply_rotary_pos_emb_fp32, apply_rotary_pos_emb_in_halves,
    apply_rotary_pos_emb_interleave, apply_rotary_pos_emb_phi3, apply_rotary_pos_emb_to, picked_sections,
    rotate_every_two,
};
pub use scope::Scope;
pub use shards::{ShardPlan, Sharded};
