//! Gemma 4's attention: queries, keys and values normalised head by head; layers at the end use the keys and values of one before
//! them.

use plimsoll_torch::nn::{AttentionCore, Linear, PowerRmsNorm, Scope, apply_rotary_pos_emb_to, kv_cache};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::decoder::Keywords;
use super::heads::Heads;

/// Where a layer has its keys and values from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum States {
    /// Its own, for itself alone.
    Own,
    /// Its own, and left for the layers behind it: the last of its kind that has some.
    Stored,
    /// Those that were left.
    Shared,
}

/// What differs between the layers.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Heads and their size.
    pub heads: Heads,
    /// `attention_bias`.
    pub bias: bool,
    /// How far back the layer looks, where that is limited.
    pub window: Option<u64>,
    /// Values are the keys, before either is normalised (`attention_k_eq_v`).
    pub values_are_keys: bool,
    /// Where keys and values come from.
    pub states: States,
}

/// `Gemma4TextAttention`.
#[derive(Debug)]
pub struct Gemma4Attend {
    q_proj: Linear,
    q_norm: PowerRmsNorm,
    own: Option<KeyValue>,
    o_proj: Linear,
    core: AttentionCore,
    pub options: Options,
    module: ModuleId,
}

/// What makes a layer's own keys and values.
#[derive(Debug)]
struct KeyValue {
    k_norm: PowerRmsNorm,
    v_norm: PowerRmsNorm,
    k_proj: Linear,
    v_proj: Option<Linear>,
}

impl Gemma4Attend {
    /// In the order of its `__init__`.
    pub fn new(scope: &Scope, options: Options, core: AttentionCore) -> Self {
        let Heads { hidden, heads, kv_heads, head_dim } = options.heads;
        let linear = |name: &'static str, i, o| Linear::new(&scope.child(name), i, o, options.bias);
        let q_proj = linear("q_proj", hidden, heads * head_dim);
        let q_norm = PowerRmsNorm::new(&scope.child("q_norm"), head_dim);
        let own = (options.states != States::Shared).then(|| KeyValue {
            k_norm: PowerRmsNorm::new(&scope.child("k_norm"), head_dim),
            v_norm: PowerRmsNorm::without_weight(&scope.child("v_norm")),
            k_proj: linear("k_proj", hidden, kv_heads * head_dim),
            v_proj: (!options.values_are_keys).then(|| linear("v_proj", hidden, kv_heads * head_dim)),
        });
        let o_proj = linear("o_proj", heads * head_dim, hidden);
        Self { q_proj, q_norm, own, o_proj, core, options, module: scope.module() }
    }

    /// The attended hidden states, and the probabilities that eager attention returns beside them.
    pub fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq, head_dim) = (hidden.size(0), hidden.size(1), self.options.heads.head_dim);
            let split =
                |projected: &Tensor| ops::view(projected, &[batch, seq, projected.size(-1) / head_dim, head_dim]);
            let turned = |x: &Tensor| match &keywords.rotary {
                Some((cos, sin)) => apply_rotary_pos_emb_to(x, cos, sin),
                None => x.clone(),
            };
            let mut query = split(&self.q_proj.forward(hidden));
            query = self.q_norm.forward(&query);
            query = turned(&query);
            query = ops::transpose(&query, 1, 2);
            let windowed = self.options.window.is_some();
            let shared = keywords.shared.as_ref();
            let (key, value) = match &self.own {
                Some(own) => {
                    let mut key = split(&own.k_proj.forward(hidden));
                    let mut value = own.v_proj.as_ref().map_or_else(|| key.clone(), |v| split(&v.forward(hidden)));
                    key = own.k_norm.forward(&key);
                    key = turned(&key);
                    key = ops::transpose(&key, 1, 2);
                    value = own.v_norm.forward(&value);
                    value = ops::transpose(&value, 1, 2);
                    kv_cache::update(key, value, self.options.window)
                }
                None => match shared.and_then(|shared| shared.stored(windowed)) {
                    Some(stored) => stored,
                    None => unreachable!("build refuses a layer that has none before it"),
                },
            };
            if let (States::Stored, Some(shared)) = (self.options.states, shared) {
                shared.store(windowed, &key, &value);
            }
            let (mut out, weights) = self.core.forward(&query, &key, &value, keywords.mask.as_ref());
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, out.size(2) * head_dim]));
            out = self.o_proj.forward(&out);
            (out, weights)
        })
    }
}
