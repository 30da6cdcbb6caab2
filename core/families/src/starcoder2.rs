//! StarCoder2 (transformers `models/starcoder2/modeling_starcoder2.py`).

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{Activation, AttentionCore, Embedding, LayerNorm, Linear, Norm, Scope};

use super::attend::{Attend, AttendOptions, QueryKeyNorms};
use super::config::Config;
use super::decoder::{Decoder, EmbedDropout, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::pre_norm::{FeedForward, PlainMlp, PreNormLayer};
use super::turns::Turns;
use super::{Model, Plan, causal_lm};

/// `Starcoder2ForCausalLM(config)`, with the defaults of `configuration_starcoder2.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 3072, heads: 24, kv_heads: Some(2), head_dim: None })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let turns = Turns::read(scope, config)?;
    let intermediate = config.size("intermediate_size", 12_288)?;
    let count = config.layers("num_hidden_layers", 30)?;
    let act = config.text("hidden_act", "gelu_pytorch_tanh")?;
    let bias = config.flag("use_bias", true)?;
    let dropout = config.probability("residual_dropout", 0.0)?;
    let window = config.optional_size("sliding_window")?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    // `attn_weights += attention_mask`
    let core = AttentionCore { adds_in_place: true, ..core };
    let options = AttendOptions {
        heads,
        rotary,
        turns,
        qkv_bias: bias,
        out_bias: bias,
        out_dropout: dropout,
        window,
        ..AttendOptions::PLAIN
    };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 49_152)?, heads.hidden);
    let layer = |scope: &Scope, _| -> Option<Box<dyn Layer>> {
        let mlp = scope.child("mlp");
        let norm = |name: &'static str| Norm::Layer(LayerNorm::new(&scope.child(name), heads.hidden, true));
        Some(Box::new(PreNormLayer {
            self_attn: Attend::new(&scope.child("self_attn"), &options, core.clone(), |_| QueryKeyNorms::None),
            mlp: FeedForward::Plain(Box::new(PlainMlp {
                fc1: Linear::new(&mlp.child("c_fc"), heads.hidden, intermediate, bias),
                fc2: Linear::new(&mlp.child("c_proj"), intermediate, heads.hidden, bias),
                act: Activation::new(&mlp.child("act"), act)?,
                dropout,
                module: mlp.module(),
            })),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: window.is_some(),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Layer(LayerNorm::new(&model.child("norm"), heads.hidden, true));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", true)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let masks = window.map_or(Masks::Windowless, Masks::Windowed);
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    let p = config.probability("embedding_dropout", 0.0)?;
    let embed_dropout = Some(EmbedDropout { p, module: model.module(), rebinds: false });
    let rules = scope.cx().machine().rules;
    let checkpoints = !rules.has(&rules::STARCODER2_FORGETS_CHECKPOINTS) || rules.has(&rules::STARCODER2_CHECKPOINTS);
    Ok(Decoder { embed_dropout, checkpoints, ..Decoder::new(scope, &model, plan, parts)? }.boxed())
}
