//! OLMo (transformers `models/olmo/modeling_olmo.py`): norms without parameters, clamped projections.

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Task;
use plimsoll_torch::nn::{Embedding, GatedMlp, Norm, PlainLayerNorm, Scope};

use super::attend::{Attend, AttendOptions, QueryKeyNorms, Rotation};
use super::config::Config;
use super::decoder::{AngleTables, Decoder, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::pre_norm::{FeedForward, PreNormLayer};
use super::turns::Turns;
use super::{Model, Plan, causal_lm};

/// `OlmoForCausalLM(config)`, with the defaults of `configuration_olmo.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 4096, heads: 32, kv_heads: None, head_dim: None })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let turns = Turns::read(scope, config)?;
    let intermediate = config.size("intermediate_size", 11_008)?;
    let count = config.layers("num_hidden_layers", 32)?;
    let act = config.text("hidden_act", "silu")?;
    let bias = config.flag("attention_bias", false)?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let wide = scope.cx().machine().rules.has(&rules::OLMO_IN_FLOAT32);
    let options = AttendOptions {
        heads,
        rotary,
        turns,
        qkv_bias: bias,
        out_bias: bias,
        clip: config.has("clip_qkv"),
        whole_projections: true,
        rotation: if wide { Rotation::InFloat32 } else { Rotation::Halves },
        ..AttendOptions::PLAIN
    };
    if plan.task == Task::CausalLm && config.flag("tie_word_embeddings", false)? {
        // Its norms have no parameters, and its head none of its own.
        scope.ends_with(format!("layers.{}.mlp.down_proj", count.saturating_sub(1)));
    }
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 50_304)?, heads.hidden);
    let layer = |scope: &Scope, _| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Plain(PlainLayerNorm::new(&scope.child(name)));
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
    let norm = Norm::Plain(PlainLayerNorm::new(&model.child("norm")));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, true), || causal_lm::head(scope, &embed_tokens, tied))?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks: Masks::Full };
    let angles = if wide { AngleTables::InFloat32 } else { AngleTables::Twice };
    Ok(Decoder { angles, ..Decoder::new(scope, &model, plan, parts)? }.boxed())
}
