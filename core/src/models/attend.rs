//! The attention most rotary decoders share: four projections, queries and keys turned by their position.

use super::decoder::Keywords;
use super::heads::Heads;
use crate::nn::{AttentionCore, Linear, Norm, Scope, apply_partial_rotary_pos_emb, apply_rotary_pos_emb};
use crate::ops;
use crate::tensor::{ModuleId, Tensor};

/// Where queries and keys are normalised.
#[derive(Debug)]
pub enum QueryKeyNorms {
    /// Not at all.
    None,
    /// Every head on its own, once the projection is split (Qwen3, Gemma 3).
    Heads(Norm, Norm),
    /// The whole projection (OLMo 2).
    Projections(Norm, Norm),
}

/// What differs between the families.
#[derive(Clone, Copy, Debug)]
pub struct AttendOptions {
    /// Heads and their size.
    pub heads: Heads,
    /// How many dimensions of a head are turned; 0: positions are not looked at (SmolLM3's every fourth layer).
    pub rotary: u64,
    /// A bias on the query, key and value projections.
    pub qkv_bias: bool,
    /// A bias on the output projection.
    pub out_bias: bool,
    /// The output projection's name.
    pub out_name: &'static str,
    /// Eager scores are squashed by a tanh (Gemma 2).
    pub soft_cap: bool,
}

/// `LlamaAttention` and its relatives.
#[derive(Debug)]
pub struct Attend {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    norms: QueryKeyNorms,
    core: AttentionCore,
    head_dim: u64,
    rotary: u64,
    soft_cap: bool,
    module: ModuleId,
}

impl Attend {
    /// Projections in the order of `q_proj, k_proj, v_proj, o_proj`; then `norms` registers its own parameters.
    pub fn new(
        scope: &Scope,
        options: &AttendOptions,
        core: AttentionCore,
        norms: impl FnOnce(&Scope) -> QueryKeyNorms,
    ) -> Self {
        let heads = options.heads;
        let linear = |name: &str, i, o, bias| Linear::new(&scope.child(name), i, o, bias);
        let (q, kv) = (heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim);
        Self {
            q_proj: linear("q_proj", heads.hidden, q, options.qkv_bias),
            k_proj: linear("k_proj", heads.hidden, kv, options.qkv_bias),
            v_proj: linear("v_proj", heads.hidden, kv, options.qkv_bias),
            o_proj: linear(options.out_name, q, heads.hidden, options.out_bias),
            norms: norms(scope),
            core,
            head_dim: heads.head_dim,
            rotary: options.rotary,
            soft_cap: options.soft_cap,
            module: scope.module(),
        }
    }

    /// The attended hidden states, and the probabilities that eager attention returns beside them.
    pub fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq) = (hidden.size(0), hidden.size(1));
            let heads = |projected: &Tensor, norm: Option<&Norm>| {
                let count = projected.size(-1) / self.head_dim;
                let split = ops::view(projected, &[batch, seq, count, self.head_dim]);
                let split = norm.map_or(split.clone(), |n| n.forward(&split));
                ops::transpose(&split, 1, 2)
            };
            let (mut query, mut key, value) = match &self.norms {
                QueryKeyNorms::Projections(q_norm, k_norm) => {
                    let query = q_norm.forward(&self.q_proj.forward(hidden));
                    let key = k_norm.forward(&self.k_proj.forward(hidden));
                    let value = self.v_proj.forward(hidden);
                    (heads(&query, None), heads(&key, None), heads(&value, None))
                }
                norms => {
                    let (q_norm, k_norm) = match norms {
                        QueryKeyNorms::Heads(q, k) => (Some(q), Some(k)),
                        _ => (None, None),
                    };
                    let query = heads(&self.q_proj.forward(hidden), q_norm);
                    let key = heads(&self.k_proj.forward(hidden), k_norm);
                    (query, key, heads(&self.v_proj.forward(hidden), None))
                }
            };
            let (cos, sin) = &keywords.rotary;
            (query, key) = match self.rotary {
                0 => (query, key),
                all if all == self.head_dim => apply_rotary_pos_emb(&query, &key, cos, sin),
                _ => apply_partial_rotary_pos_emb(&query, &key, cos, sin),
            };
            let mask = keywords.mask.as_ref();
            let (mut out, weights) = if self.soft_cap {
                self.core.forward_capped(&query, &key, &value, mask)
            } else {
                self.core.forward(&query, &key, &value, mask)
            };
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, out.size(2) * self.head_dim]));
            out = self.o_proj.forward(&out);
            (out, weights)
        })
    }
}
