//! GLM-4.5 and its relatives (transformers `models/glm4_moe/modeling_glm4_moe.py`): GLM's heads turned by halves, the first
//! layers dense, the others with DeepSeek V3's mixtures.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, GatedMlp, Norm, RmsNorm, Scope};

use super::attend::{Attend, AttendOptions, QueryKeyNorms, Rotation};
use super::config::Config;
use super::decoder::{Decoder, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::pre_norm::{FeedForward, PreNormLayer};
use super::shared_moe::{Mixture, MixtureDefaults, SharedMoe};
use super::{Model, Plan, causal_lm};

const MIXTURE: MixtureDefaults =
    MixtureDefaults { intermediate: 1408, experts: 128, top_k: 8, shared: 1, groups: 1, top_groups: 1, dense: 1 };

/// `Glm4MoeForCausalLM(config)`, with the defaults of `configuration_glm4_moe.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 4096, heads: 96, kv_heads: Some(8), head_dim: None })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 0.5)?;
    let intermediate = config.size("intermediate_size", 10_944)?;
    let count = config.layers("num_hidden_layers", 46)?;
    let mixture = Mixture::read(config, heads.hidden, MIXTURE)?;
    let act = config.text("hidden_act", "silu")?;
    let qkv_bias = config.flag("attention_bias", false)?;
    let normed = config.flag("use_qk_norm", false)?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let options = AttendOptions { heads, rotary, qkv_bias, rotation: Rotation::InParts, ..AttendOptions::PLAIN };
    let norms = |scope: &Scope| {
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), heads.head_dim));
        // Before they are transposed, but after all three are projected.
        if normed { QueryKeyNorms::Split(norm("q_norm"), norm("k_norm")) } else { QueryKeyNorms::None }
    };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 151_552)?, heads.hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), heads.hidden));
        let self_attn = Attend::new(&scope.child("self_attn"), &options, core.clone(), norms);
        let mlp = scope.child("mlp");
        Some(Box::new(PreNormLayer {
            self_attn,
            mlp: if i < mixture.dense {
                FeedForward::Gated(Box::new(GatedMlp::new(&mlp, heads.hidden, intermediate, act, false)?))
            } else {
                FeedForward::Shared(Box::new(SharedMoe::new(&mlp, &mixture)?))
            },
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: false,
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Rms(RmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks: Masks::Full };
    Ok(Decoder::new(scope, &model, plan, parts)?.boxed())
}
