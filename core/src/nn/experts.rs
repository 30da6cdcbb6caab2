//! Mixtures of experts as transformers 5 runs them: all experts' weights in two tensors, grouped products
//! (`integrations/moe.py`, `grouped_mm_experts_forward`).

use super::{Activation, Scope};
use crate::ops;
use crate::tensor::{DType, ModuleId, Tensor};

/// `MixtralExperts`: every expert's gate and up projections in one tensor, its down projections in another.
#[derive(Debug)]
pub struct Experts {
    gate_up_proj: Tensor,
    down_proj: Tensor,
    act_fn: Activation,
    module: ModuleId,
}

impl Experts {
    /// `count` experts from `hidden` to `intermediate` features and back; `None` for an unknown activation.
    pub fn new(scope: &Scope, count: u64, hidden: u64, intermediate: u64, act: &str) -> Option<Self> {
        Some(Self {
            gate_up_proj: scope.parameter(&[count, 2 * intermediate, hidden]),
            down_proj: scope.parameter(&[count, hidden, intermediate]),
            act_fn: Activation::new(&scope.child("act_fn"), act)?,
            module: scope.module(),
        })
    }

    /// From `[tokens, hidden]`, each token's experts `[tokens, k]` and their weights.
    pub fn forward(&self, hidden: &Tensor, experts: &Tensor, weights: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            if hidden.cx().decodes() {
                self.batched(hidden, experts, weights)
            } else {
                self.grouped(hidden, experts, weights)
            }
        })
    }

    /// `batched_mm_experts_forward`, which `generate` changes to once the prompt is read: every token has the weights of
    /// its experts copied out for itself.
    fn batched(&self, hidden: &Tensor, experts: &Tensor, weights: &Tensor) -> Tensor {
        let cx = hidden.cx();
        let (tokens, top_k, width) = (hidden.size(0), experts.size(1), hidden.size(1));
        let selected = tokens * top_k;
        let rows = {
            let each = ops::expand(&ops::unsqueeze(hidden, 1), &[tokens, top_k, width]);
            ops::view(&ops::clone(&each), &[selected, width])
        };
        let sample_weights = ops::reshape(weights, &[selected]);
        let expert_ids = ops::fresh(cx, "clamp", &[selected], DType::Int64);
        let linear = |x: &Tensor, weight: &Tensor| {
            let out = ops::matmul(weight, &ops::unsqueeze(x, -1));
            ops::view(&out, &[selected, weight.size(1)])
        };
        let mut chosen = ops::index(&self.gate_up_proj, &[&expert_ids]);
        let mut out = linear(&rows, &chosen);
        out = {
            let parts = ops::split(&out, self.down_proj.size(2), -1);
            let gate = self.act_fn.forward(&parts[0]);
            ops::mul(&gate, &parts[1])
        };
        chosen = ops::index(&self.down_proj, &[&expert_ids]);
        out = linear(&out, &chosen);
        let weighted = ops::mul(&out, &ops::unsqueeze(&sample_weights, -1));
        let sum = ops::sum_middle(&ops::view(&weighted, &[tokens, top_k, width]));
        let sum = ops::to(&sum, hidden.dtype());
        drop((rows, expert_ids, chosen, out, weighted));
        sum
    }

    fn grouped(&self, hidden: &Tensor, experts: &Tensor, weights: &Tensor) -> Tensor {
        let cx = hidden.cx();
        let (tokens, top_k, width) = (hidden.size(0), experts.size(1), hidden.size(1));
        let (count, selected) = (self.gate_up_proj.size(0), tokens * top_k);
        let sample_weights = ops::reshape(weights, &[selected]);
        // The sorted expert numbers, and the permutation that sorts them.
        let expert_ids = ops::fresh(cx, "sort", &[selected], DType::Int64);
        let perm = ops::fresh(cx, "sort", &[selected], DType::Int64);
        let mut rows = {
            let owners = ops::fresh(cx, "floor_divide", &[selected], DType::Int64);
            ops::index_rows(hidden, &owners)
        };
        let sample_weights = ops::index_rows(&sample_weights, &perm);
        let histc_input = ops::fresh(cx, "_to_copy", &[selected], DType::Int32);
        let tokens_per_expert = ops::fresh(cx, "histc", &[count], DType::Int32);
        let offsets = ops::fresh(cx, "cumsum", &[count], DType::Int32);
        let sentinel = ops::unsqueeze(&ops::fresh(cx, "ge.Scalar", &[selected], DType::Bool), -1);
        rows = ops::masked_fill_in_place(rows, &sentinel);

        let mut out = self.grouped_linear(&rows, &self.gate_up_proj, &offsets);
        out = ops::masked_fill(&out, &sentinel);
        out = {
            let parts = ops::split(&out, self.down_proj.size(2), -1);
            let gate = self.act_fn.forward(&parts[0]);
            ops::mul(&gate, &parts[1])
        };
        out = self.grouped_linear(&out, &self.down_proj, &offsets);
        out = ops::masked_fill(&out, &sentinel);
        let mut weighted = ops::mul(&out, &ops::unsqueeze(&sample_weights, -1));
        let inverse = ops::fresh(cx, "empty_like", &[selected], DType::Int64);
        drop(ops::fresh(cx, "arange", &[selected], DType::Int64));
        weighted = ops::index_rows(&weighted, &inverse);
        let sum = ops::sum_middle(&ops::view(&weighted, &[tokens, top_k, width]));
        let sum = ops::to(&sum, hidden.dtype());
        drop((expert_ids, perm, histc_input, tokens_per_expert, rows, out));
        sum
    }

    /// `_grouped_linear`.
    fn grouped_linear(&self, x: &Tensor, weight: &Tensor, offsets: &Tensor) -> Tensor {
        ops::grouped_linear(&ops::to(x, weight.dtype()), weight, offsets)
    }
}

/// How a router makes weights of its logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// `softmax(logits.float())`, the chosen ones made to add up to one, left in float32 (Mixtral).
    Float32,
    /// `softmax(logits, dtype=torch.float)`, made to add up to one where `normalised`, cast back to the logits' dtype
    /// (Qwen, OLMoE).
    Cast {
        /// `norm_topk_prob`.
        normalised: bool,
    },
}

/// `MixtralTopKRouter`: which experts each token goes to.
#[derive(Debug)]
pub struct Router {
    weight: Tensor,
    top_k: u64,
    scores: Scores,
    module: ModuleId,
}

/// What a router decides.
#[derive(Debug)]
pub struct Routing {
    /// Of every expert.
    #[allow(dead_code, reason = "held alive, as Python holds it")]
    logits: Tensor,
    /// The chosen experts' weights, `[tokens, k]`.
    pub scores: Tensor,
    /// The chosen experts, int64 `[tokens, k]`.
    pub indices: Tensor,
}

impl Router {
    /// Among `count` experts, `top_k` for each token.
    pub fn new(scope: &Scope, count: u64, hidden: u64, top_k: u64, scores: Scores) -> Self {
        Self { weight: scope.parameter(&[count, hidden]), top_k, scores, module: scope.module() }
    }

    /// Of `[tokens, hidden]`.
    pub fn forward(&self, hidden: &Tensor) -> Routing {
        hidden.cx().within(self.module, || {
            let hidden = ops::reshape(hidden, &[hidden.size(0), hidden.size(1)]);
            let logits = ops::linear(&hidden, &self.weight, None);
            drop(hidden);
            let probabilities = match self.scores {
                Scores::Float32 => ops::softmax(&ops::to(&logits, DType::Float32)),
                Scores::Cast { .. } => ops::softmax_fp32(&logits),
            };
            let (mut scores, indices) = ops::topk(&probabilities, self.top_k);
            if matches!(self.scores, Scores::Float32 | Scores::Cast { normalised: true }) {
                let sum = ops::sum_last(&scores);
                scores = ops::div_in_place(scores, &sum);
            }
            if let Scores::Cast { .. } = self.scores {
                scores = ops::to(&scores, logits.dtype());
            }
            Routing { logits, scores, indices }
        })
    }
}
