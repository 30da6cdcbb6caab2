//! Llama 4's mixture (transformers `models/llama4/modeling_llama4.py`, `Llama4TextMoe`): every expert multiplies every token,
//! which a sigmoid weighs before; beside them one expert that every token goes to.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Activation, GatedMlp, Scope};
use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::tensor::{DType, ModuleId, Tensor};

use super::config::Config;
use super::sparse;

/// What a mixture is made of.
#[derive(Clone, Copy, Debug)]
pub struct MoeSizes<'a> {
    /// `hidden_size`.
    pub hidden: u64,
    /// `intermediate_size`, of every expert.
    pub intermediate: u64,
    /// `num_local_experts`.
    pub experts: u64,
    /// `num_experts_per_tok`.
    pub top_k: u64,
    /// `hidden_act`.
    pub act: &'a str,
}

impl<'a> MoeSizes<'a> {
    /// With the defaults of `Llama4TextConfig`.
    ///
    /// # Errors
    /// More chosen experts than there are, or what is not estimated yet.
    pub fn read(config: &'a Config<'_>, hidden: u64) -> Result<Self> {
        sparse::refuse(config)?;
        let experts = sparse::experts(config, "num_local_experts", 16)?;
        Ok(Self {
            hidden,
            intermediate: config.size("intermediate_size", 8192)?,
            experts,
            top_k: sparse::chosen(config, 1, experts)?,
            act: config.text("hidden_act", "silu")?,
        })
    }
}

/// `Llama4TextMoe`.
#[derive(Debug)]
pub struct Llama4Moe {
    experts: Experts,
    router: Router,
    shared_expert: GatedMlp,
    module: ModuleId,
}

impl Llama4Moe {
    /// `None` for an unknown activation.
    pub fn new(scope: &Scope, sizes: &MoeSizes<'_>) -> Option<Self> {
        let MoeSizes { hidden, intermediate, act, .. } = *sizes;
        Some(Self {
            experts: Experts::new(&scope.child("experts"), sizes)?,
            router: Router::new(&scope.child("router"), sizes),
            shared_expert: GatedMlp::new(&scope.child("shared_expert"), hidden, intermediate, act, false)?,
            module: scope.module(),
        })
    }

    /// `forward`: `[tokens, hidden]`, and the router's logits beside it.
    pub fn forward(&self, hidden: &Tensor) -> (Tensor, Tensor) {
        hidden.cx().within(self.module, || {
            let width = hidden.size(-1);
            let hidden = ops::reshape(hidden, &[hidden.numel() / width, width]);
            let (scores, logits) = self.router.forward(&hidden);
            let (tokens, count) = (hidden.size(0), scores.size(1));
            let mut routed_in = ops::repeat_batch(&hidden, count);
            routed_in = {
                let weights = ops::reshape(&ops::transpose(&scores, 0, 1), &[count * tokens, 1]);
                ops::mul(&routed_in, &weights)
            };
            let routed_out = self.experts.forward(&routed_in);
            let mut out = self.shared_expert.forward(&hidden);
            out = {
                let sum = ops::sum_first(&ops::reshape(&routed_out, &[count, tokens, width]));
                ops::add_in_place(out, &sum)
            };
            drop((hidden, scores, routed_in, routed_out));
            (out, logits)
        })
    }
}

/// `Llama4Router`: a linear by its class, which bitsandbytes leaves as it is (`type(module) is nn.Linear`), and around which an
/// adapter fails, for it returns two tensors.
#[derive(Debug)]
struct Router {
    weight: Tensor,
    top_k: u64,
    module: ModuleId,
}

impl Router {
    fn new(scope: &Scope, sizes: &MoeSizes<'_>) -> Self {
        let weight = scope.parameter(&[sizes.experts, sizes.hidden]);
        Self { weight, top_k: sizes.top_k, module: scope.module() }
    }

    /// Every token's weight for every expert, 0 for those it does not go to; and the logits.
    fn forward(&self, hidden: &Tensor) -> (Tensor, Tensor) {
        hidden.cx().within(self.module, || {
            let logits = ops::linear(hidden, &self.weight, None);
            let (values, indices) = ops::topk(&logits, self.top_k);
            let mut scores = {
                let none = ops::fill(logits.cx(), Fill::FullLike, logits.dims(), logits.dtype());
                ops::scatter_in_place(none, &indices, &values)
            };
            let dtype = scores.dtype();
            scores = {
                let sigmoid = {
                    let wide = ops::to(&scores, DType::Float32);
                    ops::sigmoid(&wide)
                };
                ops::to(&sigmoid, dtype)
            };
            drop((values, indices));
            (scores, logits)
        })
    }
}

/// `Llama4TextExperts`, which nothing adapts.
#[derive(Debug)]
struct Experts {
    gate_up_proj: Tensor,
    down_proj: Tensor,
    act_fn: Activation,
    module: ModuleId,
}

impl Experts {
    fn new(scope: &Scope, sizes: &MoeSizes<'_>) -> Option<Self> {
        let MoeSizes { hidden, intermediate, experts, act, .. } = *sizes;
        Some(Self {
            gate_up_proj: scope.parameter(&[experts, hidden, 2 * intermediate]),
            down_proj: scope.parameter(&[experts, intermediate, hidden]),
            act_fn: Activation::new(&scope.child("act_fn"), act)?,
            module: scope.module(),
        })
    }

    /// Of `[experts * tokens, hidden]`.
    fn forward(&self, hidden: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            let (count, width) = (self.gate_up_proj.size(0), hidden.size(1));
            let hidden = ops::view(hidden, &[count, hidden.size(0) / count, width]);
            let gate_up = ops::bmm(&hidden, &self.gate_up_proj);
            let parts = ops::split(&gate_up, gate_up.size(-1) / 2, -1);
            let next = {
                let product = {
                    let gate = self.act_fn.forward(&parts[0]);
                    ops::mul(&parts[1], &gate)
                };
                ops::bmm(&product, &self.down_proj)
            };
            let out = ops::view(&next, &[count * next.size(1), width]);
            drop((gate_up, parts, hidden));
            out
        })
    }
}
