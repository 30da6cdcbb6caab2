//! DeepSeek V3 and R1 (transformers `models/deepseek_v3/modeling_deepseek_v3.py`): latent attention, the first layers dense,
//! the others with mixtures of experts.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, GatedMlp, Norm, RmsNorm, Scope};

use super::config::Config;
use super::decoder::{Decoder, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::latent_attention::{LatentAttention, LatentDefaults, LatentSizes};
use super::pre_norm::{FeedForward, PreNormLayer};
use super::shared_moe::{Mixture, MixtureDefaults, SharedMoe};
use super::{Model, Plan, causal_lm};

const MIXTURE: MixtureDefaults =
    MixtureDefaults { intermediate: 2048, experts: 256, top_k: 8, shared: 1, groups: 8, top_groups: 4, dense: 3 };

const SIZES: LatentDefaults = LatentDefaults { hidden: 7168, heads: 128, kv_heads: Some(128) };

/// `DeepseekV3ForCausalLM(config)`, with the defaults of `configuration_deepseek_v3.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = LatentSizes::read(config, SIZES)?;
    let hidden = sizes.hidden;
    let intermediate = config.size("intermediate_size", 18_432)?;
    let count = config.layers("num_hidden_layers", 61)?;
    let mixture = Mixture::read(config, hidden, MIXTURE)?;
    let act = config.text("hidden_act", "silu")?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 129_280)?, hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), hidden));
        let self_attn = LatentAttention::new(&scope.child("self_attn"), sizes, core.clone());
        let mlp = scope.child("mlp");
        Some(Box::new(PreNormLayer {
            self_attn,
            mlp: if i < mixture.dense {
                FeedForward::Gated(Box::new(GatedMlp::new(&mlp, hidden, intermediate, act, false)?))
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
    let norm = Norm::Rms(RmsNorm::new(&model.child("norm"), hidden));
    let rotary_emb = super::decoder::rotary(&model, config, sizes.rope);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks: Masks::Full };
    Ok(Decoder::new(scope, &model, plan, parts)?.boxed())
}
