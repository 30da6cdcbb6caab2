//! OLMoE (transformers `models/olmoe/modeling_olmoe.py`).

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
use super::{Model, Plan, causal_lm};

/// `OlmoeForCausalLM(config)`, with the defaults of `configuration_olmoe.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 2048, heads: 16, kv_heads: None, head_dim: None })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let count = config.layers("num_hidden_layers", 16)?;
    let experts = sparse::experts(config, "num_experts", 64)?;
    sparse::refuse(config)?;
    let act = config.text("hidden_act", "silu")?;
    let bias = config.flag("attention_bias", false)?;
    let core = causal_lm::own_attention(plan, config.probability("attention_dropout", 0.0)?);
    let options = AttendOptions {
        heads,
        rotary,
        qkv_bias: bias,
        out_bias: bias,
        clip: config.has("clip_qkv"),
        ..AttendOptions::PLAIN
    };
    let norms = |scope: &Scope| {
        let norm = |name: &'static str, count| Norm::Rms(RmsNorm::new(&scope.child(name), count * heads.head_dim));
        QueryKeyNorms::Projections(norm("q_norm", heads.heads), norm("k_norm", heads.kv_heads))
    };
    let sizes = BlockSizes {
        hidden: heads.hidden,
        intermediate: config.size("intermediate_size", 2048)?,
        shared: None,
        count: experts,
        top_k: sparse::chosen(config, 8, experts)?,
        scores: Scores::Cast { normalised: config.flag("norm_topk_prob", false)? },
        experts_first: false,
        act,
        listing: sparse::Listing::Olmoe,
        leaf: false,
    };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 50_304)?, heads.hidden);
    let layer = |scope: &Scope, _| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), heads.hidden));
        Some(Box::new(PreNormLayer {
            self_attn: Attend::new(&scope.child("self_attn"), &options, core.clone(), norms),
            mlp: FeedForward::Sparse(Box::new(SparseMoeBlock::new(&scope.child("mlp"), &sizes)?)),
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
        DecoderHead::new(scope, config, plan, (&embed_tokens, true), || causal_lm::head(scope, &embed_tokens, tied))?;
    let shares = scope.cx().machine().rules.has(&rules::MIXTURES_SHARE_MASK);
    let masks = if shares { Masks::Full } else { Masks::Late };
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    Ok(Decoder::new(scope, &model, plan, parts)?.boxed())
}
