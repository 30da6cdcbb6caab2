//! Llama 4's text model (transformers `models/llama4/modeling_llama4.py`): queries and keys turned by complex numbers and
//! normalised without a weight, every fourth layer neither, but scaled by the position; layers that look at a chunk of the
//! sequence; mixtures in every layer or every other.

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{
    AttentionCore, Embedding, GatedMlp, L2Norm, LastRmsNorm, Linear, Norm, Probabilities, Scope,
    apply_rotary_emb_before_heads, kv_cache,
};
use plimsoll_torch::ops::{self, Pointwise};
use plimsoll_torch::tensor::{DType, ModuleId, Tensor};

use super::config::Config;
use super::decoder::{AngleTables, Decoder, Keywords, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::llama4_moe::{Llama4Moe, MoeSizes};
use super::{Model, Plan, causal_lm};

/// What differs between the layers' attentions.
#[derive(Clone, Copy, Debug)]
struct AttendOptions {
    heads: Heads,
    bias: bool,
    /// `use_rope`.
    turned: bool,
    /// `use_qk_norm`, of layers that turn.
    normed: bool,
    /// `attn_temperature_tuning`, of layers that do not.
    scaled: bool,
    /// How many tokens a chunk has, of layers that look no further: what a generation remembers of it.
    chunk: Option<u64>,
}

#[derive(Debug)]
struct Attend {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    qk_norm: Option<L2Norm>,
    core: AttentionCore,
    options: AttendOptions,
    module: ModuleId,
}

impl Attend {
    fn new(scope: &Scope, options: AttendOptions, core: AttentionCore) -> Self {
        let heads = options.heads;
        let linear = |name: &'static str, i, o| Linear::new(&scope.child(name), i, o, options.bias);
        let (q, kv) = (heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim);
        Self {
            q_proj: linear("q_proj", heads.hidden, q),
            k_proj: linear("k_proj", heads.hidden, kv),
            v_proj: linear("v_proj", heads.hidden, kv),
            o_proj: linear("o_proj", q, heads.hidden),
            qk_norm: options.normed.then(|| L2Norm::new(&scope.child("qk_norm"))),
            core,
            options,
            module: scope.module(),
        }
    }

    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq, head_dim) = (hidden.size(0), hidden.size(1), self.options.heads.head_dim);
            let split = |x: &Tensor| ops::view(x, &[batch, seq, x.size(-1) / head_dim, head_dim]);
            let mut query = split(&self.q_proj.forward(hidden));
            let mut key = split(&self.k_proj.forward(hidden));
            let mut value = ops::transpose(&split(&self.v_proj.forward(hidden)), 1, 2);
            if let Some(freqs_cis) = keywords.freqs_cis.as_ref().filter(|_| self.options.turned) {
                (query, key) = apply_rotary_emb_before_heads(&query, &key, freqs_cis);
            }
            if let Some(norm) = &self.qk_norm {
                query = norm.forward(&query);
                key = norm.forward(&key);
            }
            let mut scales = None;
            if self.options.scaled {
                let (positions, scale) = temperatures(&query);
                query = {
                    let scaled = ops::mul(&query, &scale);
                    ops::to(&scaled, query.dtype())
                };
                scales = Some((positions, scale));
            }
            query = ops::transpose(&query, 1, 2);
            key = ops::transpose(&key, 1, 2);
            (key, value) = kv_cache::update(key, value, self.options.chunk);
            let (mut out, weights) = self.core.forward(&query, &key, &value, keywords.mask.as_ref());
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, self.options.heads.heads * head_dim]));
            out = self.o_proj.forward(&out);
            drop(scales);
            (out, weights)
        })
    }
}

/// `positions` and `attn_scales` of the queries `[batch, seq, heads, dim]`: both are names until the forward is done.
fn temperatures(query: &Tensor) -> (Option<Tensor>, Tensor) {
    let (cx, batch, seq) = (query.cx(), query.size(0), query.size(1));
    // What the model counted, until layers counted anew.
    let counted = cx.machine().rules.has(&rules::POSITIONS_SHIFTED).then(|| {
        let from_zero = ops::arange(cx, seq);
        ops::each(Pointwise::AddTensor, &from_zero, DType::Int64)
    });
    let mut scales = ops::pointwise(Pointwise::ToCopy, query, &[], &[seq], DType::Float32);
    // + 1, / floor_scale, floor, log1p, * attn_scale, + 1
    for op in [
        Pointwise::AddTensor,
        Pointwise::DivTensor,
        Pointwise::Floor,
        Pointwise::Log1p,
        Pointwise::MulTensor,
        Pointwise::AddTensor,
    ] {
        scales = ops::each(op, &scales, DType::Float32);
    }
    scales = ops::expand(&ops::view(&scales, &[1, seq, 1, 1]), &[batch, seq, 1, 1]);
    (counted, scales)
}

#[derive(Debug)]
enum FeedForward {
    Dense(Box<GatedMlp>),
    Mixture(Box<Llama4Moe>),
}

#[derive(Debug)]
struct Llama4Layer {
    self_attn: Attend,
    feed_forward: FeedForward,
    input_layernorm: LastRmsNorm,
    post_attention_layernorm: LastRmsNorm,
    module: ModuleId,
}

impl Layer for Llama4Layer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        let (hidden, keywords) = &keywords.given(self.module, hidden);
        hidden.cx().within(self.module, || {
            let mut residual = hidden.clone();
            let mut hidden = self.input_layernorm.forward(&residual);
            // `_` is the attention's probabilities until a router's logits take the name.
            let (attended, mut other) = self.self_attn.forward(&hidden, keywords);
            hidden = ops::add(&residual, &attended);
            residual = hidden.clone();
            hidden = self.post_attention_layernorm.forward(&hidden);
            match &self.feed_forward {
                FeedForward::Dense(mlp) => hidden = mlp.forward(&hidden),
                FeedForward::Mixture(mixture) => {
                    let (out, logits) = mixture.forward(&hidden);
                    hidden = out;
                    other = Some(logits);
                }
            }
            let out = ops::add(&residual, &ops::view(&hidden, residual.dims()));
            drop((other, attended));
            out
        })
    }

    fn windowed(&self) -> bool {
        self.self_attn.options.chunk.is_some()
    }

    fn kind(&self) -> u64 {
        2 * u64::from(self.self_attn.options.turned) + u64::from(matches!(self.feed_forward, FeedForward::Mixture(_)))
    }
}

/// Which layers do what.
struct Pattern<'a> {
    unturned: Option<Vec<u64>>,
    interval: u64,
    mixtures: Option<Vec<u64>>,
    step: u64,
    types: Option<Vec<&'a str>>,
}

impl<'a> Pattern<'a> {
    fn read(config: &Config<'a>, layers: u64) -> Result<Self> {
        // An empty list is none.
        let unturned = config.counts("no_rope_layers").filter(|list| !list.is_empty());
        if let Some(list) = unturned.as_ref().filter(|list| (list.len() as u64) < layers) {
            return Err(config.error(
                "no_rope_layers",
                format!("{} entries for {layers} layers", list.len()),
                "give one for every layer, or leave the key out",
            ));
        }
        let types = config.layer_types(layers, &["chunked_attention", "full_attention"])?;
        Ok(Self {
            unturned,
            interval: config.size("no_rope_layer_interval", 4)?,
            mixtures: config.counts("moe_layers"),
            step: config.size("interleave_moe_layer_step", 1)?,
            types,
        })
    }

    /// Whether layer `i` turns queries and keys: `no_rope_layers` has a 1 for those that do.
    fn turned(&self, i: u64) -> bool {
        match &self.unturned {
            Some(list) => list.get(i as usize).is_some_and(|turned| *turned != 0),
            None => !(i + 1).is_multiple_of(self.interval),
        }
    }

    /// Whether it is a mixture.
    fn mixes(&self, i: u64) -> bool {
        match &self.mixtures {
            Some(list) => list.contains(&i),
            None => (i + 1).is_multiple_of(self.step),
        }
    }

    /// Whether it looks at a chunk alone.
    fn chunked(&self, i: u64) -> bool {
        match &self.types {
            Some(types) => types.get(i as usize) == Some(&"chunked_attention"),
            None => self.turned(i),
        }
    }
}

/// `Llama4ForCausalLM(config)`, with the defaults of `Llama4TextConfig` in `configuration_llama4.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let heads = Heads::read(config, HeadDefaults { hidden: 5120, heads: 40, kv_heads: Some(8), head_dim: Some(128) })?;
    let rotary = heads.rotary(config, "partial_rotary_factor", 1.0)?;
    let dense = config.size("intermediate_size_mlp", 16_384)?;
    let count = config.layers("num_hidden_layers", 48)?;
    let mixture = MoeSizes::read(config, heads.hidden)?;
    let pattern = Pattern::read(config, count)?;
    let given = config.flag("attention_bias", false)?;
    let bias = given && scope.cx().machine().rules.has(&rules::LLAMA4_HAS_BIASES);
    let normed = config.flag("use_qk_norm", true)?;
    let scaled = config.flag("attn_temperature_tuning", true)?;
    // Its mask is made whether a layer looks through it or not.
    let default = (!config.mentions("attention_chunk_size")).then_some(8192);
    let Some(chunk) = config.optional_size("attention_chunk_size")?.or(default) else {
        return Err(config.error(
            "attention_chunk_size",
            "transformers fails without a size of chunks",
            "give the number of tokens of one, or leave the key out for 8192",
        ));
    };
    let core = AttentionCore {
        probabilities: Probabilities::AsTheyAre,
        ..causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?)
    };
    let model = scope.child("model");
    let embed_tokens = Embedding::new(&model.child("embed_tokens"), config.size("vocab_size", 202_048)?, heads.hidden);
    let layer = |scope: &Scope, i| -> Option<Box<dyn Layer>> {
        let norm = |name: &'static str| LastRmsNorm::new(&scope.child(name), heads.hidden);
        let turned = pattern.turned(i);
        let chunk = pattern.chunked(i).then_some(chunk);
        let options = AttendOptions { heads, bias, turned, normed: normed && turned, scaled: scaled && !turned, chunk };
        let self_attn = Attend::new(&scope.child("self_attn"), options, core.clone());
        let feed_forward = scope.child("feed_forward");
        Some(Box::new(Llama4Layer {
            self_attn,
            feed_forward: if pattern.mixes(i) {
                FeedForward::Mixture(Box::new(Llama4Moe::new(&feed_forward, &mixture)?))
            } else {
                FeedForward::Dense(Box::new(GatedMlp::new(&feed_forward, heads.hidden, dense, mixture.act, false)?))
            },
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", mixture.act), (&model, count), layer)?;
    let norm = Norm::Last(LastRmsNorm::new(&model.child("norm"), heads.hidden));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks: Masks::Chunked(chunk) };
    Ok(Decoder { angles: AngleTables::Complex, asks_embeddings: true, ..Decoder::new(scope, &model, plan, parts)? }
        .boxed())
}
