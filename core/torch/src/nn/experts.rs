//! Mixtures of experts as transformers 5 runs them: all experts' weights in two tensors, grouped products
//! (`integrations/moe.py`, `grouped_mm_experts_forward`).

use plimsoll_catalog::families::ExpertPart;

use super::parameter_adapter::{ParameterAdapter, Parametrized};
use super::{Activation, Scope};
use crate::ops::{self, Fill, Pointwise, Reduction};
use crate::tensor::{DType, ModuleId, Tensor};

/// `MixtralExperts`: every expert's gate and up projections in one tensor, its down projections in another.
#[derive(Debug)]
pub struct Experts {
    gate_up_proj: Tensor,
    down_proj: Tensor,
    act_fn: Activation,
    /// On `gate_up_proj`.
    gate_up_adapter: Option<ParameterAdapter>,
    /// On `down_proj`, around the other.
    down_adapter: Option<ParameterAdapter>,
    module: ModuleId,
}

/// The experts' weights as their forward finds them.
#[derive(Clone, Copy)]
struct Weights<'w> {
    gate_up: &'w dyn Fn() -> Tensor,
    down: &'w dyn Fn() -> Tensor,
}

impl Experts {
    /// `count` experts from `hidden` to `intermediate` features and back; `None` for an unknown activation.
    pub fn new(scope: &Scope, count: u64, hidden: u64, intermediate: u64, act: &str) -> Option<Self> {
        let (gate_up, down) = (scope.expert_adapter(ExpertPart::GateUp), scope.expert_adapter(ExpertPart::Down));
        let inner = if down.is_some() { scope.child("base_layer") } else { scope.clone() };
        let base = if gate_up.is_some() { inner.child("base_layer") } else { inner.clone() };
        Some(Self {
            gate_up_proj: base.parameter(&[count, 2 * intermediate, hidden]),
            down_proj: base.parameter(&[count, hidden, intermediate]),
            act_fn: Activation::new(&base.child("act_fn"), act)?,
            // The ranks of two projections in one add up.
            gate_up_adapter: gate_up
                .map(|rank| ParameterAdapter::new(&inner, 2 * rank, count, [2 * intermediate, hidden])),
            down_adapter: down.map(|rank| ParameterAdapter::new(scope, rank, count, [hidden, intermediate])),
            module: scope.module(),
        })
    }

    /// From `[tokens, hidden]`, each token's experts `[tokens, k]` and their weights.
    pub fn forward(&self, hidden: &Tensor, experts: &Tensor, weights: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            let down = self.down_adapter.as_ref().map(|adapter| adapter.activate(&self.down_proj));
            let gate_up = self.gate_up_adapter.as_ref().map(|adapter| adapter.activate(&self.gate_up_proj));
            let seen = |plain: &Tensor, adapted: &Option<Parametrized<'_>>| {
                adapted.as_ref().map_or_else(|| plain.clone(), Parametrized::get)
            };
            let own =
                Weights { gate_up: &|| seen(&self.gate_up_proj, &gate_up), down: &|| seen(&self.down_proj, &down) };
            let out = if hidden.cx().decodes() {
                self.batched(hidden, experts, weights, own)
            } else {
                self.grouped(hidden, experts, weights, own)
            };
            let sum = if down.is_some() { gate_up.and_then(Parametrized::leave) } else { None };
            drop((sum, down));
            out
        })
    }

    /// `batched_mm_experts_forward`, which `generate` changes to once the prompt is read: every token has the weights of
    /// its experts copied out for itself.
    fn batched(&self, hidden: &Tensor, experts: &Tensor, weights: &Tensor, own: Weights<'_>) -> Tensor {
        let (tokens, top_k, width) = (hidden.size(0), experts.size(1), hidden.size(1));
        let selected = tokens * top_k;
        let rows = {
            let each = ops::expand(&ops::unsqueeze(hidden, 1), &[tokens, top_k, width]);
            ops::view(&ops::clone(&each), &[selected, width])
        };
        let sample_weights = ops::reshape(weights, &[selected]);
        let expert_ids = ops::pointwise(Pointwise::Clamp, experts, &[], &[selected], DType::Int64);
        let linear = |x: &Tensor, weight: &Tensor| {
            let out = ops::matmul(weight, &ops::unsqueeze(x, -1));
            ops::view(&out, &[selected, weight.size(1)])
        };
        let mut chosen = ops::index(&(own.gate_up)(), &[&expert_ids]);
        let mut out = linear(&rows, &chosen);
        out = {
            let parts = ops::split(&out, self.down_proj.size(2), -1);
            let gate = self.act_fn.forward(&parts[0]);
            ops::mul(&gate, &parts[1])
        };
        chosen = ops::index(&(own.down)(), &[&expert_ids]);
        out = linear(&out, &chosen);
        let weighted = ops::mul(&out, &ops::unsqueeze(&sample_weights, -1));
        let sum = ops::sum_middle(&ops::view(&weighted, &[tokens, top_k, width]));
        let sum = ops::to(&sum, hidden.dtype());
        drop((rows, expert_ids, chosen, out, weighted));
        sum
    }

    fn grouped(&self, hidden: &Tensor, experts: &Tensor, weights: &Tensor, own: Weights<'_>) -> Tensor {
        let cx = hidden.cx();
        let (tokens, top_k, width) = (hidden.size(0), experts.size(1), hidden.size(1));
        let (count, selected) = (self.gate_up_proj.size(0), tokens * top_k);
        let sample_weights = ops::reshape(weights, &[selected]);
        // The sorted expert numbers, and the permutation that sorts them.
        let expert_ids = ops::reduction(Reduction::Sort, experts, &[selected], DType::Int64);
        let perm = ops::reduction(Reduction::Sort, experts, &[selected], DType::Int64);
        let mut rows = {
            let owners = ops::pointwise(Pointwise::FloorDivide, &perm, &[], &[selected], DType::Int64);
            ops::index_rows(hidden, &owners)
        };
        let sample_weights = ops::index_rows(&sample_weights, &perm);
        let histc_input = ops::pointwise(Pointwise::ToCopy, &expert_ids, &[], &[selected], DType::Int32);
        let tokens_per_expert = ops::reduction(Reduction::Histc, &histc_input, &[count], DType::Int32);
        let offsets = ops::reduction(Reduction::Cumsum, &tokens_per_expert, &[count], DType::Int32);
        let sentinel =
            ops::unsqueeze(&ops::pointwise(Pointwise::GeScalar, &expert_ids, &[], &[selected], DType::Bool), -1);
        rows = ops::masked_fill_in_place(rows, &sentinel);

        let mut out = grouped_linear(&rows, &(own.gate_up)(), &offsets);
        out = ops::masked_fill(&out, &sentinel);
        out = {
            let parts = ops::split(&out, self.down_proj.size(2), -1);
            let gate = self.act_fn.forward(&parts[0]);
            ops::mul(&gate, &parts[1])
        };
        out = grouped_linear(&out, &(own.down)(), &offsets);
        out = ops::masked_fill(&out, &sentinel);
        let mut weighted = ops::mul(&out, &ops::unsqueeze(&sample_weights, -1));
        let inverse = ops::fill(cx, Fill::EmptyLike, &[selected], DType::Int64);
        drop(ops::fill(cx, Fill::Arange, &[selected], DType::Int64));
        weighted = ops::index_rows(&weighted, &inverse);
        let sum = ops::sum_middle(&ops::view(&weighted, &[tokens, top_k, width]));
        let sum = ops::to(&sum, hidden.dtype());
        drop((expert_ids, perm, histc_input, tokens_per_expert, rows, out));
        sum
    }
}

/// `_grouped_mm`, which casts what it is given.
fn grouped_linear(x: &Tensor, weight: &Tensor, offsets: &Tensor) -> Tensor {
    ops::grouped_linear(&ops::to(x, weight.dtype()), weight, offsets)
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
    adapter: Option<ParameterAdapter>,
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
        let rank = scope.expert_adapter(ExpertPart::Router);
        let base = if rank.is_some() { scope.child("base_layer") } else { scope.clone() };
        let weight = base.parameter(&[count, hidden]);
        let adapter = rank.map(|rank| ParameterAdapter::new(scope, rank, 1, [count, hidden]));
        Self { weight, adapter, top_k, scores, module: scope.module() }
    }

    /// Of `[tokens, hidden]`.
    pub fn forward(&self, hidden: &Tensor) -> Routing {
        hidden.cx().within(self.module, || {
            let adapted = self.adapter.as_ref().map(|adapter| adapter.activate(&self.weight));
            let hidden = ops::reshape(hidden, &[hidden.size(0), hidden.size(1)]);
            let weight = || adapted.as_ref().map_or_else(|| self.weight.clone(), Parametrized::get);
            let logits = ops::linear(&hidden, &weight(), None);
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
