//! Qwen3-Next (transformers `models/qwen3_next/modeling_qwen3_next.py`): three layers of linear attention by the gated delta
//! rule and one of gated attention in turn, each with a mixture of experts behind it.
//!
//! Linear layers are estimated as they run in PyTorch alone, without flash-linear-attention and causal-conv1d: that is what
//! transformers falls back to, in float32 and chunk by chunk. What those kernels keep instead is not estimated.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, GemmaRmsNorm, Norm, Scope, Scores};
use plimsoll_torch::tensor::Tensor;

use super::config::Config;
use super::decoder::{Decoder, Keywords, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::gated_attend::GatedAttend;
use super::gated_delta_net::{DeltaSizes, GatedDeltaNet, InProjections};
use super::heads::{HeadDefaults, Heads};
use super::mixture::Mixture;
use super::pre_norm::{PreNormLayer, SelfAttention};
use super::sparse::{self, BlockSizes};
use super::{Model, Plan, causal_lm};

/// What mixes the tokens of a layer.
#[derive(Debug)]
pub enum Mixer {
    /// Gated attention.
    Full(Box<GatedAttend>),
    /// Linear attention by the gated delta rule.
    Linear(Box<GatedDeltaNet>),
}

impl SelfAttention for Mixer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        match self {
            Self::Full(attend) => attend.forward(hidden, keywords),
            Self::Linear(net) => (net.forward(hidden, keywords.mask.as_ref()), None),
        }
    }

    fn kind(&self) -> u64 {
        u64::from(matches!(self, Self::Linear(_)))
    }
}

/// Which layers are linear: `layer_types`, or all but every `full_attention_interval`-th.
pub struct Pattern<'a> {
    types: Option<Vec<&'a str>>,
    interval: u64,
}

impl<'a> Pattern<'a> {
    /// Of a model with so many layers.
    ///
    /// # Errors
    /// Layers of another kind, or too few of them.
    pub fn read(config: &Config<'a>, layers: u64) -> Result<Self> {
        let types = config.layer_types(layers, &["linear_attention", "full_attention"])?;
        Ok(Self { types, interval: config.size("full_attention_interval", 4)? })
    }

    /// Whether layer `i` is.
    pub fn is_linear(&self, i: u64) -> bool {
        match &self.types {
            Some(types) => types.get(i as usize) == Some(&"linear_attention"),
            None => !(i + 1).is_multiple_of(self.interval),
        }
    }
}

/// `Qwen3NextForCausalLM(config)`, with the defaults of `configuration_qwen3_next.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 2048, heads: 16, kv_heads: Some(2), head_dim: Some(256) })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 0.25)?;
    let intermediate = config.size("intermediate_size", 5632)?;
    let count = config.layers("num_hidden_layers", 48)?;
    let pattern = Pattern::read(config, count)?;
    let delta = DeltaSizes::read(config, heads.hidden)?;
    let experts = sparse::experts(config, "num_experts", 512)?;
    sparse::refuse(config)?;
    let act = delta.act;
    let bias = config.flag("attention_bias", false)?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let sizes = BlockSizes {
        hidden: heads.hidden,
        intermediate: config.size("moe_intermediate_size", 512)?,
        shared: Some(config.size("shared_expert_intermediate_size", 512)?),
        count: experts,
        top_k: sparse::chosen(config, 10, experts)?,
        scores: Scores::Cast { normalised: config.flag("norm_topk_prob", true)? },
        experts_first: false,
        act,
        listing: sparse::Listing::Qwen,
        leaf: false,
    };
    let mixture = Mixture::read(config, sizes)?;
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 151_936)?, heads.hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| Norm::Gemma(GemmaRmsNorm::new(&scope.child(name), heads.hidden));
        let linear = pattern.is_linear(i);
        let self_attn = if linear {
            Mixer::Linear(Box::new(GatedDeltaNet::new(&scope.child("linear_attn"), &delta, InProjections::Together)?))
        } else {
            Mixer::Full(Box::new(GatedAttend::new(&scope.child("self_attn"), heads, bias, core.clone())))
        };
        Some(Box::new(PreNormLayer {
            self_attn,
            mlp: mixture.feed_forward(&scope.child("mlp"), i, intermediate)?,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            windowed: linear,
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Gemma(GemmaRmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks: Masks::Recurrent };
    Ok(Decoder::new(scope, &model, plan, parts)?.boxed())
}
