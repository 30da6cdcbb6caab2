//! `Qwen3NextAttention` (transformers `models/qwen3_next/modeling_qwen3_next.py`): beside every head of queries stands a gate
//! of what it attends to.

use plimsoll_torch::nn::{AttentionCore, GemmaRmsNorm, Linear, Scope, apply_partial_rotary_pos_emb, kv_cache};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::decoder::Keywords;
use super::heads::Heads;

/// The module.
#[derive(Debug)]
pub struct GatedAttend {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    q_norm: GemmaRmsNorm,
    k_norm: GemmaRmsNorm,
    core: AttentionCore,
    heads: Heads,
    module: ModuleId,
}

impl GatedAttend {
    /// Of these heads, with biases on all projections or on none.
    pub fn new(scope: &Scope, heads: Heads, bias: bool, core: AttentionCore) -> Self {
        let linear = |name: &'static str, i, o| Linear::new(&scope.child(name), i, o, bias);
        let norm = |name: &'static str| GemmaRmsNorm::new(&scope.child(name), heads.head_dim);
        let (q, kv) = (heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim);
        Self {
            q_proj: linear("q_proj", heads.hidden, 2 * q),
            k_proj: linear("k_proj", heads.hidden, kv),
            v_proj: linear("v_proj", heads.hidden, kv),
            o_proj: linear("o_proj", q, heads.hidden),
            q_norm: norm("q_norm"),
            k_norm: norm("k_norm"),
            core,
            heads,
            module: scope.module(),
        }
    }

    /// The attended hidden states, and the probabilities that eager attention returns beside them.
    pub fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq) = (hidden.size(0), hidden.size(1));
            let Heads { heads, head_dim, .. } = self.heads;
            let (mut query, mut gate) = {
                let both = ops::view(&self.q_proj.forward(hidden), &[batch, seq, heads, 2 * head_dim]);
                let parts = ops::split(&both, head_dim, -1);
                (parts[0].clone(), parts[1].clone())
            };
            gate = ops::reshape(&gate, &[batch, seq, heads * head_dim]);
            let split = |x: &Tensor| ops::view(x, &[batch, seq, x.size(-1) / head_dim, head_dim]);
            query = ops::transpose(&self.q_norm.forward(&query), 1, 2);
            let mut key = ops::transpose(&self.k_norm.forward(&split(&self.k_proj.forward(hidden))), 1, 2);
            let mut value = ops::transpose(&split(&self.v_proj.forward(hidden)), 1, 2);
            if let Some((cos, sin)) = &keywords.rotary {
                (query, key) = apply_partial_rotary_pos_emb(&query, &key, cos, sin);
            }
            (key, value) = kv_cache::update(key, value, None);
            let (mut out, weights) = self.core.forward(&query, &key, &value, keywords.mask.as_ref());
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, heads * head_dim]));
            out = {
                let opened = ops::sigmoid(&gate);
                ops::mul(&out, &opened)
            };
            out = self.o_proj.forward(&out);
            drop((query, gate, key, value));
            (out, weights)
        })
    }
}
