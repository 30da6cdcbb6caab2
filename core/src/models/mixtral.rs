//! Mixtral (transformers `models/mixtral/modeling_mixtral.py`).

use std::rc::Rc;

use super::attend::{Attend, AttendOptions, QueryKeyNorms};
use super::config::Config;
use super::decoder::{Decoder, Keywords, Layer, Masks};
use super::heads::{HeadDefaults, Heads};
use super::{Model, Plan, causal_lm};
use crate::Result;
use crate::nn::{Embedding, Experts, Norm, RmsNorm, RotaryEmbedding, Router, Scope};
use crate::ops;
use crate::tensor::{ModuleId, Tensor};

#[derive(Debug)]
struct SparseMoeBlock {
    gate: Router,
    experts: Experts,
    module: ModuleId,
}

impl SparseMoeBlock {
    fn forward(&self, hidden: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            let sizes = hidden.dims().to_vec();
            let flat = ops::view(hidden, &[sizes[0] * sizes[1], sizes[2]]);
            let routing = self.gate.forward(&flat);
            let out = self.experts.forward(&flat, &routing.indices, &routing.scores);
            ops::reshape(&out, &sizes)
        })
    }
}

#[derive(Debug)]
struct MixtralLayer {
    self_attn: Attend,
    mlp: SparseMoeBlock,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
    windowed: bool,
    module: ModuleId,
}

impl Layer for MixtralLayer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        hidden.cx().within(self.module, || {
            let residual = hidden;
            let mut hidden = self.input_layernorm.forward(residual);
            let (attended, _weights) = self.self_attn.forward(&hidden, keywords);
            hidden = attended;
            hidden = ops::add(residual, &hidden);
            let residual = hidden;
            let mut hidden = self.post_attention_layernorm.forward(&residual);
            hidden = self.mlp.forward(&hidden);
            ops::add(&residual, &hidden)
        })
    }

    fn windowed(&self) -> bool {
        self.windowed
    }
}

/// `MixtralForCausalLM(config)`, with the defaults of `configuration_mixtral.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 4096, heads: 32, kv_heads: Some(8), head_dim: None })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let intermediate = config.size("intermediate_size", 14_336)?;
    let layers = config.layers("num_hidden_layers", 32)?;
    let count = super::sparse::experts(config, "num_local_experts", 8)?;
    let top_k = super::sparse::chosen(config, 2, count)?;
    super::sparse::refuse(config)?;
    let act = config.text("hidden_act", "silu")?;
    let window = config.optional_size("sliding_window")?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let options =
        AttendOptions { heads, rotary, qkv_bias: false, out_bias: false, out_name: "o_proj", soft_cap: false };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 32_000)?, heads.hidden);
    let layer = |i| -> Option<Rc<dyn Layer>> {
        let scope = model.item("layers", i);
        let norm = |name: &str| RmsNorm::new(&scope.child(name), heads.hidden);
        let self_attn = Attend::new(&scope.child("self_attn"), &options, core.clone(), |_| QueryKeyNorms::None);
        let mlp = scope.child("mlp");
        Some(Rc::new(MixtralLayer {
            self_attn,
            mlp: SparseMoeBlock {
                gate: Router::new(&mlp.child("gate"), count, heads.hidden, top_k, true),
                experts: Experts::new(&mlp.child("experts"), count, heads.hidden, intermediate, act)?,
                module: mlp.module(),
            },
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: window.is_some(),
            module: scope.module(),
        }))
    };
    let layers = (0..layers)
        .map(layer)
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| super::unknown_activation(config, "hidden_act", act))?;
    let norm = Norm::Rms(RmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = RotaryEmbedding::new(&model.child("rotary_emb"), rotary);
    let lm_head = causal_lm::head(scope, &embed_tokens, config.flag("tie_word_embeddings", false)?);
    Ok(Box::new(Decoder {
        cx: Rc::clone(scope.cx()),
        embed_tokens,
        embed_scale: None,
        embed_dropout: None,
        layers,
        norm,
        rotary_emb,
        local_rotary: None,
        lm_head,
        soft_cap: false,
        masks: window.map_or(Masks::Full, Masks::Windowed),
        model: model.module(),
        seq: plan.seq()?,
        plan: plan.clone(),
    }))
}
