//! Gemma 2 (transformers `models/gemma2/modeling_gemma2.py`).

use std::rc::Rc;

use super::attend::{Attend, AttendOptions, QueryKeyNorms};
use super::config::Config;
use super::decoder::{Decoder, Keywords, Layer, Masks, embed_scale};
use super::heads::{HeadDefaults, Heads};
use super::{Model, Plan, causal_lm};
use crate::Result;
use crate::nn::{Embedding, GatedMlp, GemmaRmsNorm, Norm, RotaryEmbedding, Scope};
use crate::ops;
use crate::tensor::{ModuleId, Tensor};

#[derive(Debug)]
struct Gemma2Layer {
    self_attn: Attend,
    mlp: GatedMlp,
    input_layernorm: GemmaRmsNorm,
    post_attention_layernorm: GemmaRmsNorm,
    pre_feedforward_layernorm: GemmaRmsNorm,
    post_feedforward_layernorm: GemmaRmsNorm,
    windowed: bool,
    module: ModuleId,
}

impl Layer for Gemma2Layer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        hidden.cx().within(self.module, || {
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
        self.windowed
    }
}

/// `Gemma2ForCausalLM(config)`, with the defaults of `configuration_gemma2.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 2304, heads: 8, kv_heads: Some(4), head_dim: Some(256) })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let intermediate = config.size("intermediate_size", 9216)?;
    let layers = config.layers("num_hidden_layers", 26)?;
    let act = config.text("hidden_activation", "gelu_pytorch_tanh")?;
    let bias = config.flag("attention_bias", false)?;
    let listed = config.texts("layer_types");
    // An absent cap is the class's default of 50 or 30; `null` is none.
    let capped = |key: &str| config.has(key) || !config.mentions(key);
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let soft_cap = capped("attn_logit_softcapping");
    let options = AttendOptions { heads, rotary, qkv_bias: bias, out_bias: bias, out_name: "o_proj", soft_cap };
    let model = scope.child("model");
    let embedding = model.child("embed_tokens");
    let embed_tokens = Embedding::new(&embedding, config.size("vocab_size", 256_000)?, heads.hidden);
    let embed_scale = Some(embed_scale(&embedding));
    let layer = |i| -> Option<Rc<dyn Layer>> {
        let scope = model.item("layers", i);
        let norm = |name: &str| GemmaRmsNorm::new(&scope.child(name), heads.hidden);
        Some(Rc::new(Gemma2Layer {
            self_attn: Attend::new(&scope.child("self_attn"), &options, core.clone(), |_| QueryKeyNorms::None),
            mlp: GatedMlp::new(&scope.child("mlp"), heads.hidden, intermediate, act, false)?,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm"),
            post_feedforward_layernorm: norm("post_feedforward_layernorm"),
            windowed: match &listed {
                Some(types) => types.get(i as usize) == Some(&"sliding_attention"),
                None => i % 2 == 0,
            },
            module: scope.module(),
        }))
    };
    let layers = (0..layers)
        .map(layer)
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| super::unknown_activation(config, "hidden_activation", act))?;
    let norm = Norm::Gemma(GemmaRmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = RotaryEmbedding::new(&model.child("rotary_emb"), rotary);
    let lm_head = causal_lm::head(scope, &embed_tokens, config.flag("tie_word_embeddings", true)?);
    Ok(Box::new(Decoder {
        cx: Rc::clone(scope.cx()),
        embed_tokens,
        embed_scale,
        embed_dropout: None,
        layers,
        norm,
        rotary_emb,
        local_rotary: None,
        lm_head,
        soft_cap: capped("final_logit_softcapping"),
        masks: Masks::Both(config.size("sliding_window", 4096)?),
        model: model.module(),
        seq: plan.seq()?,
        plan: plan.clone(),
    }))
}
