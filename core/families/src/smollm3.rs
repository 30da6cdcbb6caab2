//! SmolLM3 (transformers `models/smollm3/modeling_smollm3.py`): Llama, but every fourth layer does not look at positions.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, GatedMlp, Norm, RmsNorm, Scope};

use super::attend::{Attend, AttendOptions, QueryKeyNorms};
use super::config::Config;
use super::decoder::{Decoder, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::pre_norm::{FeedForward, PreNormLayer};
use super::{Model, Plan, causal_lm};

/// `SmolLM3ForCausalLM(config)`, with the defaults of `configuration_smollm3.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 2048, heads: 16, kv_heads: Some(4), head_dim: None })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let intermediate = config.size("intermediate_size", 11_008)?;
    let count = config.layers("num_hidden_layers", 36)?;
    let act = config.text("hidden_act", "silu")?;
    let (bias, mlp_bias) = (config.flag("attention_bias", false)?, config.flag("mlp_bias", false)?);
    let interval = config.size("no_rope_layer_interval", 4)?;
    let listed = config.counts("no_rope_layers");
    // `no_rope_layers` lists, against its name, which layers do turn.
    let turns = |i: u64| match &listed {
        Some(flags) => flags.get(i as usize).is_none_or(|&flag| flag != 0),
        None => !(i + 1).is_multiple_of(interval),
    };
    let window =
        config.optional_size("sliding_window")?.filter(|_| config.flag("use_sliding_window", false) == Ok(true));
    let types = config.layer_types(count, causal_lm::WINDOWED)?;
    let windowed = |i: u64| {
        window.is_some()
            && match &types {
                Some(types) => types.get(i as usize) == Some(&"sliding_attention"),
                None => !turns(i),
            }
    };
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let plain = AttendOptions { heads, qkv_bias: bias, out_bias: bias, ..AttendOptions::PLAIN };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 128_256)?, heads.hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let window = window.filter(|_| windowed(i));
        let options = AttendOptions { rotary: if turns(i) { rotary } else { 0 }, window, ..plain };
        let norm = |name: &'static str| Norm::Rms(RmsNorm::new(&scope.child(name), heads.hidden));
        Some(Box::new(PreNormLayer {
            self_attn: Attend::new(&scope.child("self_attn"), &options, core.clone(), |_| QueryKeyNorms::None),
            mlp: FeedForward::Gated(Box::new(GatedMlp::new(
                &scope.child("mlp"),
                heads.hidden,
                intermediate,
                act,
                mlp_bias,
            )?)),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: windowed(i),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Rms(RmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", true)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, true), || causal_lm::head(scope, &embed_tokens, tied))?;
    let masks = window.map_or(Masks::Full, Masks::FullThenUsed);
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    Ok(Decoder::new(scope, &model, plan, parts)?.boxed())
}
