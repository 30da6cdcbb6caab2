//! Qwen's mixtures of experts: `qwen2_moe`, `qwen3_moe`
//! (transformers `models/{qwen2_moe,qwen3_moe}/modeling_*.py`).

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, Norm, RmsNorm, Scope, Scores};

use super::attend::{Attend, AttendOptions, QueryKeyNorms};
use super::config::Config;
use super::decoder::{Decoder, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::mixture::Mixture;
use super::pre_norm::PreNormLayer;
use super::sparse::{self, BlockSizes};
use super::turns::Turns;
use super::{Model, Plan, causal_lm};

/// What the two config classes take where a configuration does not say.
struct Defaults {
    heads: HeadDefaults,
    intermediate: u64,
    expert: u64,
    experts: u64,
    top_k: u64,
}

const QWEN2: Defaults = Defaults {
    heads: HeadDefaults { hidden: 2048, heads: 16, kv_heads: Some(16), head_dim: None },
    intermediate: 5632,
    expert: 1408,
    experts: 60,
    top_k: 4,
};

const QWEN3: Defaults = Defaults {
    heads: HeadDefaults { hidden: 2048, heads: 32, kv_heads: Some(4), head_dim: None },
    intermediate: 6144,
    expert: 768,
    experts: 128,
    top_k: 8,
};

/// `Qwen2MoeForCausalLM(config)` or `Qwen3MoeForCausalLM(config)`, with the defaults of their config classes.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let third = config.model_type() == "qwen3_moe";
    let defaults = if third { QWEN3 } else { QWEN2 };
    let heads = Heads::read(config, defaults.heads)?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let turns = Turns::read(scope, config)?;
    let intermediate = config.size("intermediate_size", defaults.intermediate)?;
    let count = config.layers("num_hidden_layers", 24)?;
    let experts = sparse::experts(config, "num_experts", defaults.experts)?;
    sparse::refuse(config)?;
    let act = config.text("hidden_act", "silu")?;
    let bias = config.flag("attention_bias", false)?;
    let (qkv_bias, out_bias) = if third { (bias, bias) } else { (config.flag("qkv_bias", true)?, false) };
    let dropout = config.probability("attention_dropout", 0.0)?;
    let core = if third { causal_lm::attention(plan, dropout) } else { causal_lm::own_attention(plan, dropout) };
    let plain = AttendOptions { heads, rotary, turns, qkv_bias, out_bias, ..AttendOptions::PLAIN };
    let norms = |scope: &Scope| {
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), heads.head_dim));
        if third { QueryKeyNorms::Heads(norm("q_norm"), norm("k_norm")) } else { QueryKeyNorms::None }
    };
    let shared = if third { None } else { Some(config.size("shared_expert_intermediate_size", 5632)?) };
    let sizes = BlockSizes {
        hidden: heads.hidden,
        intermediate: config.size("moe_intermediate_size", defaults.expert)?,
        shared,
        count: experts,
        top_k: sparse::chosen(config, defaults.top_k, experts)?,
        scores: Scores::Cast { normalised: config.flag("norm_topk_prob", false)? },
        experts_first: third,
        act,
        listing: sparse::Listing::Qwen,
        leaf: true,
    };
    let mixture = Mixture::read(config, sizes)?;

    // Where it is off, the saved length is no size: transformers 5 writes 0 (`Qwen2MoeConfig.__post_init__`).
    let window = if config.flag("use_sliding_window", false)? {
        let default = (!config.mentions("sliding_window")).then_some(4096);
        let window = config.optional_size("sliding_window")?.or(default);
        if window.is_none() && !third {
            // Its windowed mask is made whether a layer reads it or not.
            return Err(config.error(
                "sliding_window",
                "Qwen2-MoE with use_sliding_window makes a mask of it, and transformers fails where it is null",
                "give a number of tokens, or set use_sliding_window to false",
            ));
        }
        window
    } else {
        None
    };
    let types = if third { None } else { config.layer_types(count, causal_lm::WINDOWED)? };
    let first = config.count("max_window_layers", 28)?;
    let windowed = |i: u64| match (&types, third) {
        (_, true) => window.is_some(),
        (Some(types), false) => types.get(i as usize) == Some(&"sliding_attention"),
        (None, false) => window.is_some() && i.is_multiple_of(2) && i < first,
    };
    let masks = match (third, window) {
        (true, None) => Masks::Full,
        (true, Some(w)) => Masks::Windowed(w),
        // Qwen2-MoE makes the windowed mask whether a layer uses it or not: without a window, one of length 0.
        (false, w) if scope.cx().machine().rules.has(&rules::MIXTURES_SHARE_MASK) => Masks::Both(w.unwrap_or(0)),
        (false, w) => Masks::BothLate(w.unwrap_or(0)),
    };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 151_936)?, heads.hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), heads.hidden));
        let options = AttendOptions { window: window.filter(|_| windowed(i)), ..plain };
        let self_attn = Attend::new(&scope.child("self_attn"), &options, core.clone(), norms);
        Some(Box::new(PreNormLayer {
            self_attn,
            mlp: mixture.feed_forward(&scope.child("mlp"), i, intermediate)?,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: windowed(i),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Rms(RmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    Ok(Decoder::new(scope, &model, plan, parts)?.boxed())
}
