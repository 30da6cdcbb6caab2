//! Gemma (transformers `models/gemma/modeling_gemma.py`).

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, GatedMlp, GemmaRmsNorm, Norm, Scope};

use super::attend::{Attend, AttendOptions, QueryKeyNorms};
use super::config::Config;
use super::decoder::{Decoder, Layer, Masks, Parts, embed_scale_by_version, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::pre_norm::{FeedForward, PreNormLayer};
use super::turns::Turns;
use super::{Model, Plan, causal_lm};

/// `GemmaForCausalLM(config)`, with the defaults of `configuration_gemma.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let defaults = HeadDefaults { hidden: 3072, heads: 16, kv_heads: Some(16), head_dim: Some(256) };
    let heads = Heads::read(config, defaults)?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let turns = Turns::read(scope, config)?;
    let intermediate = config.size("intermediate_size", 24_576)?;
    let count = config.layers("num_hidden_layers", 28)?;
    let act = config.text("hidden_act", "gelu_pytorch_tanh")?;
    let bias = config.flag("attention_bias", false)?;
    causal_lm::refuse_bidirectional(config)?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let options = AttendOptions { heads, rotary, turns, qkv_bias: bias, out_bias: bias, ..AttendOptions::PLAIN };
    let model = scope.child("model");
    let embedding = model.child("embed_tokens");
    let embed_tokens = Embedding::new(&embedding, config.size("vocab_size", 256_000)?, heads.hidden);
    let embed_scale = Some(embed_scale_by_version(&embedding));
    let layer = |scope: &Scope, _| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Gemma(GemmaRmsNorm::new(&scope.child(name), heads.hidden));
        Some(Box::new(PreNormLayer {
            self_attn: Attend::new(&scope.child("self_attn"), &options, core.clone(), |_| QueryKeyNorms::None),
            mlp: FeedForward::Gated(Box::new(GatedMlp::new(
                &scope.child("mlp"),
                heads.hidden,
                intermediate,
                act,
                false,
            )?)),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: false,
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Gemma(GemmaRmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", true)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, true), || causal_lm::head(scope, &embed_tokens, tied))?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks: Masks::Full };
    Ok(Decoder { embed_scale, ..Decoder::new(scope, &model, plan, parts)? }.boxed())
}
