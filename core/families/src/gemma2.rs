//! Gemma 2 and the text part of Gemma 3 (transformers `models/gemma2/modeling_gemma2.py`,
//! `models/gemma3/modeling_gemma3.py`).

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, GatedMlp, GemmaRmsNorm, Norm, RotaryEmbedding, Scope, older_hybrid_window};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::attend::{Attend, AttendOptions, QueryKeyNorms};
use super::causal_lm::Readout;
use super::config::Config;
use super::decoder::{Decoder, EmbedScale, Keywords, Layer, Masks, Parts, embed_scale, embed_scale_by_version, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::turns::Turns;
use super::{Model, Plan, causal_lm};

#[derive(Debug)]
struct Gemma2Layer {
    self_attn: Attend,
    mlp: GatedMlp,
    input_layernorm: GemmaRmsNorm,
    post_attention_layernorm: GemmaRmsNorm,
    pre_feedforward_layernorm: GemmaRmsNorm,
    post_feedforward_layernorm: GemmaRmsNorm,
    window: Option<u64>,
    module: ModuleId,
}

impl Layer for Gemma2Layer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        let (hidden, keywords) = &keywords.given(self.module, hidden);
        hidden.cx().within(self.module, || {
            let own = self.own_mask(keywords);
            let own = own.as_ref().map(|(mask, _named)| Keywords { mask: Some(mask.clone()), ..keywords.clone() });
            let keywords = own.as_ref().unwrap_or(keywords);
            let residual = hidden;
            let mut hidden = self.input_layernorm.forward(residual);
            let (attended, _weights) = self.self_attn.forward(&hidden, keywords);
            hidden = attended;
            hidden = self.post_attention_layernorm.forward(&hidden);
            hidden = ops::add(residual, &hidden);
            let residual = hidden;
            let mut hidden = self.pre_feedforward_layernorm.forward(&residual);
            hidden = self.mlp.forward(&hidden);
            hidden = self.post_feedforward_layernorm.forward(&hidden);
            ops::add(&residual, &hidden)
        })
    }

    fn windowed(&self) -> bool {
        self.window.is_some()
    }
}

impl Gemma2Layer {
    /// The mask that a layer with a window made for itself once, and what it held besides.
    fn own_mask(&self, keywords: &Keywords) -> Option<(Tensor, Vec<Tensor>)> {
        let (mask, window) = (keywords.mask.as_ref()?, self.window?);
        (!mask.cx().machine().rules.has(&rules::BOOLEAN_MASKS)).then(|| older_hybrid_window(mask, window))
    }
}

/// `Gemma2ForCausalLM(config)` or `Gemma3ForCausalLM(config)`, with the defaults of `configuration_gemma{2,3}.py`.
///
/// Gemma 3 normalises queries and keys, has no caps of its own accord, and turns positions in two ways.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 2304, heads: 8, kv_heads: Some(4), head_dim: Some(256) })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let turns = Turns::read(scope, config)?;
    let intermediate = config.size("intermediate_size", 9216)?;
    let count = config.layers("num_hidden_layers", 26)?;
    let act = config.text("hidden_activation", "gelu_pytorch_tanh")?;
    let bias = config.flag("attention_bias", false)?;
    let listed = config.layer_types(count, causal_lm::WINDOWED)?;
    let third = config.model_type() == "gemma3_text";
    causal_lm::refuse_bidirectional(config)?;
    // Gemma 2's class has caps of 50 and 30 where the config does not say; `null` is none.
    let capped = |key: &str| config.has(key) || !(third || config.mentions(key));
    // Every `pattern`-th layer sees everything.
    let pattern = if third { config.size("sliding_window_pattern", 6)? } else { 2 };
    let vocab = config.size("vocab_size", if third { 262_208 } else { 256_000 })?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    // Gemma 3's forward does not hand its cap on.
    let attention_cap = !third && capped("attn_logit_softcapping");
    let model = scope.child("model");
    let embedding = model.child("embed_tokens");
    let embed_tokens = Embedding::new(&embedding, vocab, heads.hidden);
    let embed_scale =
        Some(if third { EmbedScale::Buffer(embed_scale(&embedding)) } else { embed_scale_by_version(&embedding) });
    let norms = |scope: &Scope| {
        let norm = |name: &'static str| Norm::Gemma(GemmaRmsNorm::new(&scope.child(name), heads.head_dim));
        if third { QueryKeyNorms::Transposed(norm("q_norm"), norm("k_norm")) } else { QueryKeyNorms::None }
    };
    let windowed = |i: u64| match &listed {
        Some(types) => types.get(i as usize) == Some(&"sliding_attention"),
        None => !(i + 1).is_multiple_of(pattern),
    };
    let window = config.size("sliding_window", 4096)?;
    let options = |i| AttendOptions {
        heads,
        rotary,
        turns,
        qkv_bias: bias,
        out_bias: bias,
        soft_cap: attention_cap,
        window: windowed(i).then_some(window),
        ..AttendOptions::PLAIN
    };
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| GemmaRmsNorm::new(&scope.child(name), heads.hidden);
        Some(Box::new(Gemma2Layer {
            self_attn: Attend::new(&scope.child("self_attn"), &options(i), core.clone(), norms),
            mlp: GatedMlp::new(&scope.child("mlp"), heads.hidden, intermediate, act, false)?,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm"),
            post_feedforward_layernorm: norm("post_feedforward_layernorm"),
            window: windowed(i).then_some(window),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_activation", act), (&model, count), layer)?;
    let norm = Norm::Gemma(GemmaRmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    // Gemma 3 has frequencies for each kind of layer that it has, once for each that there could be.
    let always = !scope.cx().machine().rules.has(&rules::KINDS_HAVE_FREQUENCIES);
    let both = always || (0..count).any(windowed) && !(0..count).all(windowed);
    let local_rotary = (third && both).then(|| RotaryEmbedding::new(&model.child("rotary_emb"), rotary));
    let tied = config.flag("tie_word_embeddings", true)?;
    let mut head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, true), || causal_lm::head(scope, &embed_tokens, tied))?;
    if capped("final_logit_softcapping") {
        head = head.read_out(Readout::SoftCapped);
    }
    let masks = Masks::Hybrid(window);
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    Ok(Decoder { embed_scale, local_rotary, ..Decoder::new(scope, &model, plan, parts)? }.boxed())
}
