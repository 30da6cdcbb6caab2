//! StableLM (transformers `models/stablelm/modeling_stablelm.py`).

use plimsoll_ground::Result;
use plimsoll_torch::nn::{AttentionCore, Embedding, GatedMlp, LayerNorm, LayerNormPerHead, Norm, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::attend::{Attend, AttendOptions, QueryKeyNorms, Rotation};
use super::config::Config;
use super::decoder::{Decoder, Keywords, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::turns::Turns;
use super::{Model, Plan, causal_lm};

#[derive(Debug)]
struct StableLmLayer {
    self_attn: Attend,
    mlp: GatedMlp,
    input_layernorm: LayerNorm,
    /// Absent where the residual runs in parallel.
    post_attention_layernorm: Option<LayerNorm>,
    dropout: (f64, ModuleId),
    module: ModuleId,
}

impl Layer for StableLmLayer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        let (hidden, keywords) = &keywords.given(self.module, hidden);
        let (p, module) = self.dropout;
        let dropout = |x: &Tensor| x.cx().within(module, || ops::dropout(x, p));
        hidden.cx().within(self.module, || {
            let residual = hidden;
            let hidden = self.input_layernorm.forward(residual);
            let (attended, _weights) = self.self_attn.forward(&hidden, keywords);
            match &self.post_attention_layernorm {
                None => {
                    let mut fed = self.mlp.forward(&hidden);
                    fed = dropout(&fed);
                    let sum = ops::add(residual, &attended);
                    ops::add(&sum, &fed)
                }
                Some(norm) => {
                    let residual = ops::add(residual, &attended);
                    let mut fed = {
                        let normed = norm.forward(&residual);
                        self.mlp.forward(&normed)
                    };
                    fed = dropout(&fed);
                    ops::add(&residual, &fed)
                }
            }
        })
    }
}

/// `StableLmForCausalLM(config)`, with the defaults of `configuration_stablelm.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 2560, heads: 32, kv_heads: Some(32), head_dim: None })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 0.25)?;
    let turns = Turns::read(scope, config)?;
    let intermediate = config.size("intermediate_size", 6912)?;
    let count = config.layers("num_hidden_layers", 32)?;
    let act = config.text("hidden_act", "silu")?;
    let hidden_dropout = config.probability("hidden_dropout", 0.0)?;
    let parallel = config.flag("use_parallel_residual", false)?;
    let qk_layernorm = config.flag("qk_layernorm", false)?;
    let core = causal_lm::own_attention(plan, config.probability("attention_dropout", 0.0)?);
    // `attn_weights += causal_mask`
    let core = AttentionCore { adds_in_place: true, ..core };
    let options = AttendOptions {
        heads,
        rotary,
        turns,
        qkv_bias: config.flag("use_qkv_bias", false)?,
        whole_projections: true,
        rotation: Rotation::InNamedParts,
        ..AttendOptions::PLAIN
    };
    let norms = |scope: &Scope| {
        let norm =
            |name: &'static str, count| Norm::PerHead(LayerNormPerHead::new(&scope.child(name), heads.head_dim, count));
        if qk_layernorm {
            QueryKeyNorms::Transposed(norm("q_layernorm", heads.heads), norm("k_layernorm", heads.kv_heads))
        } else {
            QueryKeyNorms::None
        }
    };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 50_304)?, heads.hidden);
    let layer = |scope: &Scope, _| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| LayerNorm::new(&scope.child(name), heads.hidden, true);
        Some(Box::new(StableLmLayer {
            self_attn: Attend::new(&scope.child("self_attn"), &options, core.clone(), norms),
            mlp: GatedMlp::new(&scope.child("mlp"), heads.hidden, intermediate, act, false)?,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: (!parallel).then(|| norm("post_attention_layernorm")),
            dropout: (hidden_dropout, scope.child("dropout").module()),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Layer(LayerNorm::new(&model.child("norm"), heads.hidden, true));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks: Masks::Late };
    Ok(Decoder::new(scope, &model, plan, parts)?.boxed())
}
