//! GLM-4 9B and its relatives (transformers `models/{glm,glm4}/modeling_*.py`): half of every head is turned, each
//! dimension with its neighbour; `glm4` normalises what attention and feed-forward give as well.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, Norm, RmsNorm, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::attend::{Attend, AttendOptions, QueryKeyNorms, Rotation};
use super::config::Config;
use super::decoder::{Decoder, Keywords, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::fused_mlp::FusedMlp;
use super::heads::{HeadDefaults, Heads};
use super::{Model, Plan, causal_lm};

#[derive(Debug)]
struct GlmLayer {
    self_attn: Attend,
    mlp: FusedMlp,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
    /// `post_self_attn_layernorm` and `post_mlp_layernorm`, which `glm4` has.
    after: Option<(RmsNorm, RmsNorm)>,
    module: ModuleId,
}

impl Layer for GlmLayer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        let (hidden, keywords) = &keywords.given(self.module, hidden);
        let after = |x: Tensor, norm: Option<&RmsNorm>| norm.map_or(x.clone(), |norm| norm.forward(&x));
        hidden.cx().within(self.module, || {
            let residual = hidden;
            let mut hidden = self.input_layernorm.forward(residual);
            let (attended, _weights) = self.self_attn.forward(&hidden, keywords);
            hidden = attended;
            hidden = after(hidden, self.after.as_ref().map(|norms| &norms.0));
            hidden = ops::add(residual, &hidden);
            let residual = hidden;
            let mut hidden = self.post_attention_layernorm.forward(&residual);
            hidden = self.mlp.forward(&hidden);
            hidden = after(hidden, self.after.as_ref().map(|norms| &norms.1));
            ops::add(&residual, &hidden)
        })
    }
}

/// `GlmForCausalLM(config)` or `Glm4ForCausalLM(config)`, with the defaults of `configuration_{glm,glm4}.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 4096, heads: 32, kv_heads: Some(2), head_dim: Some(128) })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 0.5)?;
    let intermediate = config.size("intermediate_size", 13_696)?;
    let count = config.layers("num_hidden_layers", 40)?;
    let act = config.text("hidden_act", "silu")?;
    let qkv_bias = config.flag("attention_bias", true)?;
    let norms_after = config.model_type() == "glm4";
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let options = AttendOptions { heads, rotary, qkv_bias, rotation: Rotation::Neighbours, ..AttendOptions::PLAIN };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 151_552)?, heads.hidden);
    let layer = |scope: &Scope, _| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| RmsNorm::new(&scope.child(name), heads.hidden);
        Some(Box::new(GlmLayer {
            self_attn: Attend::new(&scope.child("self_attn"), &options, core.clone(), |_| QueryKeyNorms::None),
            mlp: FusedMlp::new(&scope.child("mlp"), heads.hidden, intermediate, act)?,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            after: norms_after.then(|| (norm("post_self_attn_layernorm"), norm("post_mlp_layernorm"))),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Rms(RmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, true), || causal_lm::head(scope, &embed_tokens, tied))?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks: Masks::Full };
    Ok(Decoder::new(scope, &model, plan, parts)?.boxed())
}
