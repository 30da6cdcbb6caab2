//! Mixtures of experts as transformers 5 runs them: all experts' weights in two tensors, grouped products
//! (`integrations/moe.py`, `grouped_mm_experts_forward`).

mod batched;
mod grouped;
mod older;

use plimsoll_catalog::families::ExpertPart;
use plimsoll_catalog::software::rules;

use super::parameter_adapter::{ParameterAdapter, Parametrized};
use super::{Activation, Scope};
use crate::ops;
use crate::tensor::{DType, ModuleId, Tensor};

/// `MixtralExperts`: every expert's gate and up projections in one tensor, its down projections in another.
#[derive(Debug)]
pub struct Experts {
    gate_up_proj: Tensor,
    down_proj: Tensor,
    form: Form,
    /// On `gate_up_proj`.
    gate_up_adapter: Option<ParameterAdapter>,
    /// On `down_proj`, around the other.
    down_adapter: Option<ParameterAdapter>,
    module: ModuleId,
}

/// What an expert does between its products.
#[derive(Debug)]
enum Form {
    /// `act_fn(gate) * up`, of two halves.
    Gated(Activation),
    /// GPT-OSS's: weights stored transposed, `[experts, in, out]`, biases, gate and up alternating and clamped.
    Clamped { gate_up_proj_bias: Tensor, down_proj_bias: Tensor },
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
            form: Form::Gated(Activation::new(&base.child("act_fn"), act)?),
            // The ranks of two projections in one add up.
            gate_up_adapter: gate_up
                .map(|rank| ParameterAdapter::new(&inner, 2 * rank, count, [2 * intermediate, hidden])),
            down_adapter: down.map(|rank| ParameterAdapter::new(scope, rank, count, [hidden, intermediate])),
            module: scope.module(),
        })
    }

    /// `GptOssExperts`, which nothing adapts.
    pub fn clamped(scope: &Scope, count: u64, hidden: u64, intermediate: u64) -> Self {
        let gate_up_proj = scope.parameter(&[count, hidden, 2 * intermediate]);
        let gate_up_proj_bias = scope.parameter(&[count, 2 * intermediate]);
        let down_proj = scope.parameter(&[count, intermediate, hidden]);
        let down_proj_bias = scope.parameter(&[count, hidden]);
        Self {
            gate_up_proj,
            down_proj,
            form: Form::Clamped { gate_up_proj_bias, down_proj_bias },
            gate_up_adapter: None,
            down_adapter: None,
            module: scope.module(),
        }
    }

    /// `self.gate_up_proj_bias[expert_ids]` and the same of `down_proj`, where there are biases.
    fn biases(&self, up: bool, expert_ids: &Tensor) -> Option<Tensor> {
        match &self.form {
            Form::Gated(_) => None,
            Form::Clamped { gate_up_proj_bias, down_proj_bias } => {
                Some(ops::index(if up { gate_up_proj_bias } else { down_proj_bias }, &[expert_ids]))
            }
        }
    }

    /// `_apply_gate`.
    fn gate(&self, gate_up: &Tensor) -> Tensor {
        match &self.form {
            Form::Gated(act_fn) => {
                let parts = ops::split(gate_up, gate_up.size(-1) / 2, -1);
                let gate = act_fn.forward(&parts[0]);
                ops::mul(&gate, &parts[1])
            }
            Form::Clamped { .. } => {
                let (mut gate, mut up) = ops::halves_by_turns(gate_up);
                gate = ops::clamp_max(&gate);
                up = ops::clamp_numbers(&up);
                let glu = {
                    let sigmoid = {
                        let scaled = ops::mul_scalar(&gate);
                        ops::sigmoid(&scaled)
                    };
                    ops::mul(&gate, &sigmoid)
                };
                let shifted = ops::add_scalar(&up);
                ops::mul(&shifted, &glu)
            }
        }
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
            let at_once = hidden.cx().machine().rules.has(&rules::EXPERTS_SORTED_ONCE);
            let out = match (hidden.cx().decodes(), at_once) {
                (true, true) => self.batched(hidden, experts, weights, own),
                (false, true) => self.grouped(hidden, experts, weights, own),
                (true, false) => self.batched_once(hidden, experts, weights, own),
                (false, false) => self.grouped_once(hidden, experts, weights, own),
            };
            let sum = if down.is_some() { gate_up.and_then(Parametrized::leave) } else { None };
            drop((sum, down));
            out
        })
    }

    /// `_grouped_linear`, which casts what it is given.
    fn grouped_linear(&self, x: &Tensor, weight: &Tensor, offsets: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let x = ops::to(x, weight.dtype());
        let out = match self.form {
            Form::Gated(_) => ops::grouped_linear(&x, weight, offsets),
            Form::Clamped { .. } => ops::grouped_mm(&x, weight, offsets),
        };
        biased(out, bias)
    }
}

/// `out.add_(bias)`; before [`rules::EXPERTS_SORTED_ONCE`], `out + bias`.
fn biased(out: Tensor, bias: Option<&Tensor>) -> Tensor {
    match bias {
        Some(bias) if out.cx().machine().rules.has(&rules::EXPERTS_SORTED_ONCE) => ops::add_in_place(out, bias),
        Some(bias) => ops::add(&out, bias),
        None => out,
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
    adapter: Option<ParameterAdapter>,
    top_k: u64,
    scores: Scores,
    module: ModuleId,
}

/// What a router decides.
#[derive(Debug)]
pub struct Routing {
    /// Of every expert: held alive, as Python holds it.
    pub logits: Tensor,
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
            let mut logits = ops::linear(&hidden, &weight(), None);
            drop(hidden);
            let probabilities = match self.scores {
                Scores::Float32 => ops::softmax(&ops::to(&logits, DType::Float32)),
                Scores::Cast { .. } => ops::softmax_fp32(&logits),
            };
            if !probabilities.cx().machine().rules.has(&rules::ROUTER_KEEPS_LOGITS) {
                logits = probabilities.clone();
            }
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
