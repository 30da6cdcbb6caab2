//! Mixtral (transformers `models/mixtral/modeling_mixtral.py`).

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, Norm, RmsNorm, Scope, Scores};

use super::attend::{Attend, AttendOptions, QueryKeyNorms};
use super::config::Config;
use super::decoder::{Decoder, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::pre_norm::{FeedForward, PreNormLayer};
use super::sparse::{self, BlockSizes, SparseMoeBlock};
use super::turns::Turns;
use super::{Model, Plan, causal_lm};

/// `MixtralForCausalLM(config)`, with the defaults of `configuration_mixtral.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 4096, heads: 32, kv_heads: Some(8), head_dim: None })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let turns = Turns::read(scope, config)?;
    let count = config.layers("num_hidden_layers", 32)?;
    let experts = sparse::experts(config, "num_local_experts", 8)?;
    sparse::refuse(config)?;
    let act = config.text("hidden_act", "silu")?;
    let window = config.optional_size("sliding_window")?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let options = AttendOptions { heads, rotary, turns, window, ..AttendOptions::PLAIN };
    let sizes = BlockSizes {
        hidden: heads.hidden,
        intermediate: config.size("intermediate_size", 14_336)?,
        shared: None,
        count: experts,
        top_k: sparse::chosen(config, 2, experts)?,
        scores: Scores::Float32,
        experts_first: false,
        act,
        listing: sparse::Listing::Mixtral,
        leaf: true,
    };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 32_000)?, heads.hidden);
    let stacked = scope.cx().machine().rules.has(&rules::STACKED_EXPERTS);
    let mlp = if stacked { "mlp" } else { "block_sparse_moe" };
    let layer = |scope: &Scope, _| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), heads.hidden));
        Some(Box::new(PreNormLayer {
            self_attn: Attend::new(&scope.child("self_attn"), &options, core.clone(), |_| QueryKeyNorms::None),
            mlp: FeedForward::Sparse(Box::new(SparseMoeBlock::new(&scope.child(mlp), &sizes)?)),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: window.is_some(),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Rms(RmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let masks = window.map_or(Masks::Windowless, Masks::Windowed);
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    Ok(Decoder::new(scope, &model, plan, parts)?.boxed())
}
