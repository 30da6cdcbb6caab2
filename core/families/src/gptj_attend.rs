//! GPT-J's attention since [`rules::GPTJ_SHARES_ATTENTION`](plimsoll_catalog::software::rules::GPTJ_SHARES_ATTENTION): the model picks sines
//! and cosines once for all layers, and calls the attention that all models share, SDPA too.

use plimsoll_scenario::Attention;
use plimsoll_torch::nn::{AttentionCore, Linear, Scope, kv_cache};
use plimsoll_torch::ops::{self, Rearrangement};
use plimsoll_torch::tensor::{DType, ModuleId, Tensor};

use super::gptj::turn;

/// `GPTJRotaryEmbedding`: a row of sines and cosines for every position the model knows.
#[derive(Debug)]
pub struct Angles {
    embed_positions: Tensor,
    module: ModuleId,
}

impl Angles {
    /// Of so many positions, `turned` numbers each.
    pub fn new(scope: &Scope, positions: u64, turned: u64) -> Self {
        Self { embed_positions: scope.buffer(&[positions, turned]), module: scope.module() }
    }

    /// Sines and cosines `[rows, seq, turned / 2]` in `x`'s dtype, parts of one storage.
    pub fn forward(&self, x: &Tensor, position_ids: &Tensor) -> [Tensor; 2] {
        let turned = self.embed_positions.size(1);
        let sizes = [position_ids.size(0), position_ids.size(1), turned];
        let sincos = x.cx().within(self.module, || {
            let picked = ops::rearrangement(x.cx(), Rearrangement::IndexTensor, &sizes, DType::Float32);
            ops::to(&picked, x.dtype())
        });
        let halves = ops::split(&sincos, turned / 2, -1);
        [halves[0].clone(), halves[1].clone()]
    }
}

/// `GPTJAttention`.
#[derive(Debug)]
pub struct SharedAttend {
    k_proj: Linear,
    v_proj: Linear,
    q_proj: Linear,
    out_proj: Linear,
    core: AttentionCore,
    rotary_dim: Option<u64>,
    heads: u64,
    resid_dropout: (f64, ModuleId),
    module: ModuleId,
}

impl SharedAttend {
    /// Of `heads` heads in `embed` dimensions, of which `rotary_dim` are turned, or all.
    pub fn new(
        scope: &Scope,
        [embed, heads]: [u64; 2],
        rotary_dim: Option<u64>,
        core: AttentionCore,
        resid: f64,
    ) -> Self {
        let linear = |name: &'static str| Linear::new(&scope.child(name), embed, embed, false);
        Self {
            k_proj: linear("k_proj"),
            v_proj: linear("v_proj"),
            q_proj: linear("q_proj"),
            out_proj: linear("out_proj"),
            core,
            rotary_dim,
            heads,
            resid_dropout: (resid, scope.child("resid_dropout").module()),
            module: scope.module(),
        }
    }

    /// What attention makes of `[batch, seq, embed]`, and the probabilities it returns.
    pub fn forward(
        &self,
        hidden: &Tensor,
        mask: Option<&Tensor>,
        [sin, cos]: &[Tensor; 2],
    ) -> (Tensor, Option<Tensor>) {
        let cx = hidden.cx();
        cx.within(self.module, || {
            let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
            let head_dim = width / self.heads;
            let split = |linear: &Linear| ops::view(&linear.forward(hidden), &[batch, seq, self.heads, head_dim]);
            let (mut query, mut key) = (split(&self.q_proj), split(&self.k_proj));
            let mut value = ops::transpose(&split(&self.v_proj), 1, 2);
            let named = turn([&mut query, &mut key], self.rotary_dim, [sin, cos]);
            query = ops::transpose(&query, 1, 2);
            key = ops::transpose(&key, 1, 2);
            (key, value) = kv_cache::update(key, value, None);
            let (mut out, weights) = match self.core.implementation {
                Attention::Sdpa => self.core.forward(&query, &key, &value, mask),
                Attention::Eager => self.eager(&query, &key, &value, mask),
            };
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, width]));
            out = self.out_proj.forward(&out);
            let (p, module) = self.resid_dropout;
            out = cx.within(module, || ops::dropout(&out, p));
            drop(named);
            (out, weights)
        })
    }

    /// `eager_attention_forward`: scores of queries and keys in float32.
    fn eager(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        let mut weights = {
            let scores = {
                let (query, key) = (ops::to(q, DType::Float32), ops::to(k, DType::Float32));
                ops::matmul(&query, &ops::transpose(&key, 2, 3))
            };
            ops::mul_scalar(&scores)
        };
        if let Some(mask) = mask {
            weights = ops::add(&weights, mask);
        }
        weights = {
            let probabilities = ops::softmax(&weights);
            ops::to(&probabilities, v.dtype())
        };
        weights = ops::dropout(&weights, self.core.dropout);
        let mut out = ops::matmul(&weights, v);
        out = ops::contiguous(&ops::transpose(&out, 1, 2));
        (out, Some(weights))
    }
}
