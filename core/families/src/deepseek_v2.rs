//! DeepSeek V2 (transformers `models/deepseek_v2/modeling_deepseek_v2.py`): DeepSeek V3's latent attention, turned by complex
//! numbers, and experts that are chosen by a softmax.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, GatedMlp, Norm, RmsNorm, Scope};

use super::config::{Config, divide};
use super::decoder::{AngleTables, Decoder, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::latent_attention::{LatentAttention, LatentDefaults, LatentSizes};
use super::pre_norm::{FeedForward, PreNormLayer};
use super::shared_moe::{Mixture, MixtureDefaults, SharedMoe};
use super::{Model, Plan, causal_lm};

/// A number of experts to a token, and of groups, must be given.
const MIXTURE: MixtureDefaults =
    MixtureDefaults { intermediate: 1407, experts: 64, top_k: 1, shared: 2, groups: 1, top_groups: 1, dense: 0 };

const SIZES: LatentDefaults = LatentDefaults { hidden: 4096, heads: 32, kv_heads: None };

/// `DeepseekV2ForCausalLM(config)`, with the defaults of `configuration_deepseek_v2.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = LatentSizes::read(config, SIZES)?;
    let hidden = sizes.hidden;
    // `validate_architecture`, though no head is that wide.
    divide(config, ("hidden_size", hidden), ("num_attention_heads", sizes.heads))?;
    let intermediate = config.size("intermediate_size", 11_008)?;
    let count = config.layers("num_hidden_layers", 32)?;
    let mixture = Mixture::read_greedy(config, hidden, MIXTURE)?;
    let act = config.text("hidden_act", "silu")?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 102_400)?, hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), hidden));
        let self_attn = LatentAttention::new(&scope.child("self_attn"), sizes, core.clone());
        let mlp = scope.child("mlp");
        Some(Box::new(PreNormLayer {
            self_attn,
            mlp: if i < mixture.dense {
                FeedForward::Gated(Box::new(GatedMlp::new(&mlp, hidden, intermediate, act, mixture.bias)?))
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
    Ok(Decoder { angles: AngleTables::Complex, ..Decoder::new(scope, &model, plan, parts)? }.boxed())
}
