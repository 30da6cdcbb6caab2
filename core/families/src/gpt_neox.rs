//! GPT-NeoX and Pythia (transformers `models/gpt_neox/modeling_gpt_neox.py`).

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Attention;
use plimsoll_torch::nn::{
    Activation, AttentionCore, Embedding, LayerNorm, LayerRotary, Linear, Norm, Scope, apply_partial_rotary_pos_emb,
    apply_rotary_pos_emb, kv_cache,
};
use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::tensor::{DType, ModuleId, Tensor};

use super::config::Config;
use super::decoder::{Decoder, EmbedDropout, Keywords, Layer, Masks, Parts, layers};
use super::decoder_head::DecoderHead;
use super::heads::{HeadDefaults, Heads};
use super::turns::Turns;
use super::{Model, Plan, causal_lm};

#[derive(Debug)]
struct Attend {
    query_key_value: Linear,
    dense: Linear,
    rotary_emb: LayerRotary,
    /// What each position may see, bool, and the number that stands elsewhere, in versions that keep them.
    bias: Option<[Tensor; 2]>,
    core: AttentionCore,
    head_size: u64,
    module: ModuleId,
}

impl Attend {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            if self.bias.is_some() {
                return self.older(hidden, keywords);
            }
            let (batch, seq) = (hidden.size(0), hidden.size(1));
            let qkv = {
                let projected = self.query_key_value.forward(hidden);
                let heads = projected.size(-1) / (3 * self.head_size);
                ops::transpose(&ops::view(&projected, &[batch, seq, heads, 3 * self.head_size]), 1, 2)
            };
            let parts = ops::split(&qkv, self.head_size, -1);
            let angles = self.rotary_emb.angles(&parts[2], keywords.position_ids.as_ref(), keywords.rotary.as_ref());
            let (query, key) = apply_partial_rotary_pos_emb(&parts[0], &parts[1], &angles.cos, &angles.sin);
            let _named = angles.turned();
            let (key, value) = kv_cache::update(key, parts[2].clone(), None);
            let (mut out, weights) = self.core.forward(&query, &key, &value, keywords.mask.as_ref());
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, out.size(2) * self.head_size]));
            out = self.dense.forward(&out);
            (out, weights)
        })
    }
}

impl Attend {
    /// The classes of its own before [`rules::GPT_NEOX_SHARES_ATTENTION`].
    fn older(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
        let qkv = {
            let projected = self.query_key_value.forward(hidden);
            let heads = projected.size(-1) / (3 * self.head_size);
            ops::view(&projected, &[batch, seq, heads, 3 * self.head_size])
        };
        let size = self.head_size;
        let part = |i| ops::transpose(&ops::narrow_from(&qkv, -1, i * size, size), 1, 2);
        let (mut query, mut key, value) = (part(0), part(1), part(2));
        let angles = self.rotary_emb.angles(&value, keywords.position_ids.as_ref(), keywords.rotary.as_ref());
        let turned = angles.cos.size(-1);
        let split = |x: &Tensor| (ops::narrow(x, -1, turned), ops::narrow(x, -1, x.size(-1) - turned));
        let ((query_rot, query_pass), (key_rot, key_pass)) = (split(&query), split(&key));
        (query, key) = apply_rotary_pos_emb(&query_rot, &key_rot, &angles.cos, &angles.sin);
        let _named = angles.turned();
        // Tables are float32, and so is what they turn.
        query = ops::cat(&[&query, &query_pass], -1);
        key = ops::cat(&[&key, &key_pass], -1);
        let (key, value) = kv_cache::update(key, value, None);
        let mask = keywords.mask.as_ref();
        let mut out = match (&self.bias, self.core.implementation) {
            (Some([bias, _]), Attention::Eager) => self.eager_with_bias([&query, &key, &value], mask, bias),
            _ if query.cx().machine().rules.has(&rules::GPT_NEOX_BY_FUNCTION) => {
                // The function's names; its caller's stay.
                let cast = [&query, &key].map(|x| ops::to(x, value.dtype()));
                let [query, key] = cast.map(|x| ops::contiguous(&x));
                let value = ops::contiguous(&value);
                let attended = self.core.forward_as_given(&query, &key, &value, mask).0;
                ops::contiguous(&attended)
            }
            _ => {
                query = ops::to(&query, value.dtype());
                let key = ops::to(&key, value.dtype());
                self.core.forward_as_given(&query, &key, &value, mask).0
            }
        };
        out = ops::contiguous(&ops::reshape(&out, &[batch, seq, width]));
        (self.dense.forward(&out), None)
    }

    /// `_attn`: the product is added to zeros, and the mask of all positions hides what is to come.
    fn eager_with_bias(&self, [query, key, value]: [&Tensor; 3], mask: Option<&Tensor>, bias: &Tensor) -> Tensor {
        let (batch, heads, seq, dim) = (query.size(0), query.size(1), query.size(2), query.size(3));
        let flat = |x: &Tensor| ops::view(x, &[batch * heads, seq, dim]);
        let mut scores = {
            let zeros = ops::fill(query.cx(), Fill::Zeros, &[batch * heads, seq, seq], query.dtype());
            ops::baddbmm(&zeros, &flat(query), &ops::transpose(&flat(key), 1, 2))
        };
        scores = ops::view(&scores, &[batch, heads, seq, seq]);
        if !query.cx().machine().rules.has(&rules::GPT_NEOX_BY_FUNCTION) {
            let causal = ops::narrow(&ops::narrow(bias, 2, seq), 3, seq);
            let least = ops::fill(query.cx(), Fill::ToCopy, &[], scores.dtype());
            scores = ops::where_tensor(&causal, &scores, &least);
        }
        if let Some(mask) = mask {
            scores = ops::add(&scores, mask);
        }
        let mut weights = ops::softmax(&scores);
        weights = ops::to(&weights, value.dtype());
        weights = ops::dropout(&weights, self.core.dropout);
        // The function lays its result together before its names go.
        let by_function = query.cx().machine().rules.has(&rules::GPT_NEOX_BY_FUNCTION);
        let named = by_function.then_some(scores);
        let attended = ops::transpose(&ops::matmul(&weights, value), 1, 2);
        if named.is_some() { ops::contiguous(&attended) } else { attended }
    }
}

#[derive(Debug)]
struct NeoXLayer {
    input_layernorm: LayerNorm,
    post_attention_layernorm: LayerNorm,
    post_attention_dropout: (f64, ModuleId),
    post_mlp_dropout: (f64, ModuleId),
    attention: Attend,
    dense_h_to_4h: Linear,
    dense_4h_to_h: Linear,
    act: Activation,
    parallel_residual: bool,
    mlp: ModuleId,
    module: ModuleId,
}

impl NeoXLayer {
    fn feed_forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.mlp, || {
            let mut hidden = self.dense_h_to_4h.forward(x);
            hidden = self.act.forward(&hidden);
            self.dense_4h_to_h.forward(&hidden)
        })
    }

    /// `self.post_mlp_dropout(self.mlp(self.post_attention_layernorm(x)))`.
    fn mlp_output(&self, x: &Tensor) -> Tensor {
        let out = {
            let normed = self.post_attention_layernorm.forward(x);
            self.feed_forward(&normed)
        };
        dropout(&out, self.post_mlp_dropout)
    }
}

fn dropout(x: &Tensor, (p, module): (f64, ModuleId)) -> Tensor {
    x.cx().within(module, || ops::dropout(x, p))
}

impl Layer for NeoXLayer {
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor {
        let (hidden, keywords) = &keywords.given(self.module, hidden);
        hidden.cx().within(self.module, || {
            let (mut attended, _weights) = {
                let normed = self.input_layernorm.forward(hidden);
                self.attention.forward(&normed, keywords)
            };
            // `attention_layer_outputs`
            let _outputs = self.attention.bias.is_some().then(|| attended.clone());
            attended = dropout(&attended, self.post_attention_dropout);
            if self.parallel_residual {
                let fed = self.mlp_output(hidden);
                let sum = ops::add(&fed, &attended);
                ops::add(&sum, hidden)
            } else {
                attended = ops::add(&attended, hidden);
                let fed = self.mlp_output(&attended);
                ops::add(&fed, &attended)
            }
        })
    }
}

/// `GPTNeoXForCausalLM(config)`, with the defaults of `configuration_gpt_neox.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let defaults = HeadDefaults { hidden: 6144, heads: 64, kv_heads: None, head_dim: None };
    let Heads { hidden, heads, .. } = Heads::read(config, defaults)?;
    let head_dim = super::config::divide(config, ("hidden_size", hidden), ("num_attention_heads", heads))?;
    let rotary = Heads { hidden, heads, kv_heads: heads, head_dim }.rotary(config, "rotary_pct", 0.25)?;
    let turns = Turns::read(scope, config)?;
    let positions = turns.positions;
    let has_bias = !scope.cx().machine().rules.has(&rules::GPT_NEOX_SHARES_ATTENTION);
    let intermediate = config.size("intermediate_size", 24_576)?;
    let count = config.layers("num_hidden_layers", 44)?;
    let act = config.text("hidden_act", "gelu")?;
    let bias = config.flag("attention_bias", true)?;
    let hidden_dropout = config.probability("hidden_dropout", 0.0)?;
    let parallel_residual = config.flag("use_parallel_residual", true)?;
    let core = causal_lm::attention(plan, config.probability("attention_dropout", 0.0)?);
    let model = scope.child("gpt_neox");
    let embed_tokens = Embedding::new(&model.child("embed_in"), config.size("vocab_size", 50_432)?, hidden);
    let module = model.child("emb_dropout").module();
    let embed_dropout = Some(EmbedDropout { p: hidden_dropout, module, rebinds: false });
    let layer = |scope: &Scope, _| -> Option<Box<dyn Layer>> {
        let (attention, mlp) = (scope.child("attention"), scope.child("mlp"));
        Some(Box::new(NeoXLayer {
            input_layernorm: LayerNorm::new(&scope.child("input_layernorm"), hidden, true),
            post_attention_layernorm: LayerNorm::new(&scope.child("post_attention_layernorm"), hidden, true),
            post_attention_dropout: (hidden_dropout, scope.child("post_attention_dropout").module()),
            post_mlp_dropout: (hidden_dropout, scope.child("post_mlp_dropout").module()),
            attention: Attend {
                rotary_emb: turns.layer(&attention, rotary),
                query_key_value: Linear::new(&attention.child("query_key_value"), hidden, 3 * hidden, bias),
                dense: Linear::new(&attention.child("dense"), hidden, hidden, bias),
                bias: has_bias
                    .then(|| [attention.buffer_of(&[1, 1, positions, positions], DType::Bool), attention.buffer(&[])]),
                core: core.clone(),
                head_size: head_dim,
                module: attention.module(),
            },
            dense_h_to_4h: Linear::new(&mlp.child("dense_h_to_4h"), hidden, intermediate, true),
            dense_4h_to_h: Linear::new(&mlp.child("dense_4h_to_h"), intermediate, hidden, true),
            act: Activation::new(&mlp.child("act"), act)?,
            parallel_residual,
            mlp: mlp.module(),
            module: scope.module(),
        }))
    };
    let layers = layers(config, ("hidden_act", act), (&model, count), layer)?;
    let norm = Norm::Layer(LayerNorm::new(&model.child("final_layer_norm"), hidden, true));
    let rotary_emb = super::turns::rotary(&model, config, rotary);
    let tied = config.flag("tie_word_embeddings", false)?;
    let head =
        DecoderHead::new(scope, config, plan, (&embed_tokens, false), || causal_lm::head(scope, &embed_tokens, tied))?;
    let masks =
        if scope.cx().machine().rules.has(&rules::GPT_NEO_UPDATES_MASK) { Masks::Full } else { Masks::TwoParts };
    let parts = Parts { embed_tokens, layers, norm, rotary_emb, head, masks };
    let returns_tuples = !scope.cx().machine().rules.has(&rules::GPT_NEOX_HAS_CACHE_CLASS);
    Ok(Decoder { embed_dropout, returns_tuples, ..Decoder::new(scope, &model, plan, parts)? }.boxed())
}
