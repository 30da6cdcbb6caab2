//! The experts that some of Gemma 4's layers have beside their feed-forward.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Experts, Linear, PowerRmsNorm, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::config::Config;
use super::sparse;

/// `Gemma4TextRouter`.
#[derive(Debug)]
struct Router {
    norm: PowerRmsNorm,
    proj: Linear,
    scale: Tensor,
    per_expert_scale: Tensor,
    top_k: u64,
    module: ModuleId,
}

impl Router {
    fn new(scope: &Scope, sizes: Sizes, hidden: u64) -> Self {
        let place = scope.place();
        let norm = PowerRmsNorm::without_weight(&scope.child("norm"));
        let proj = Linear::new(&scope.child("proj"), hidden, sizes.count, false);
        let scale = scope.own_parameter(place, &[hidden]);
        let per_expert_scale = scope.own_parameter(place + 1, &[sizes.count]);
        Self { norm, proj, scale, per_expert_scale, top_k: sizes.top_k, module: scope.module() }
    }

    /// Of `[tokens, hidden]`: all experts' probabilities, the chosen ones' weights and their numbers.
    fn forward(&self, hidden: &Tensor) -> [Tensor; 3] {
        hidden.cx().within(self.module, || {
            let mut hidden = self.norm.forward(hidden);
            hidden = {
                let scaled = ops::mul(&hidden, &self.scale);
                ops::mul_scalar(&scaled)
            };
            let expert_scores = self.proj.forward(&hidden);
            let router_probabilities = ops::softmax_fp32(&expert_scores);
            let (mut top_k_weights, top_k_index) = ops::topk(&router_probabilities, self.top_k);
            let sum = ops::sum_last(&top_k_weights);
            top_k_weights = ops::div_in_place(top_k_weights, &sum);
            drop(sum);
            top_k_weights = {
                let scales = ops::index(&self.per_expert_scale, &[&top_k_index]);
                ops::mul(&top_k_weights, &scales)
            };
            [router_probabilities, top_k_weights, top_k_index]
        })
    }
}

/// How many experts of which size a layer has, and how many a token goes to.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    count: u64,
    intermediate: u64,
    top_k: u64,
}

impl Sizes {
    /// Those of a config whose `enable_moe_block` is true.
    ///
    /// # Errors
    /// One of the three is missing, or a token goes to more experts than there are.
    pub fn read(config: &Config<'_>) -> Result<Option<Self>> {
        if !config.flag("enable_moe_block", false)? {
            return Ok(None);
        }
        let given = |key: &str| {
            config.optional_size(key)?.ok_or_else(|| {
                config.error(key, "is missing beside enable_moe_block", "give it, or set enable_moe_block to false")
            })
        };
        given("num_experts")?;
        let count = sparse::experts(config, "num_experts", 1)?;
        let top_k = given("top_k_experts")?;
        if top_k > count {
            return Err(config.error(
                "top_k_experts",
                format!("{top_k} of {count} experts"),
                "choose no more experts than there are",
            ));
        }
        Ok(Some(Self { count, intermediate: given("moe_intermediate_size")?, top_k }))
    }
}

/// What a layer with experts does beside its feed-forward.
#[derive(Debug)]
pub struct Beside {
    router: Router,
    experts: Experts,
    post_feedforward_layernorm_1: PowerRmsNorm,
    post_feedforward_layernorm_2: PowerRmsNorm,
    pre_feedforward_layernorm_2: PowerRmsNorm,
}

impl Beside {
    /// In the order of the layer's `__init__`; `None` for an unknown activation.
    pub fn new(layer: &Scope, sizes: Sizes, hidden: u64, act: &str) -> Option<Self> {
        let norm = |name: &'static str| PowerRmsNorm::new(&layer.child(name), hidden);
        Some(Self {
            router: Router::new(&layer.child("router"), sizes, hidden),
            experts: Experts::new(&layer.child("experts"), sizes.count, hidden, sizes.intermediate, act)?,
            post_feedforward_layernorm_1: norm("post_feedforward_layernorm_1"),
            post_feedforward_layernorm_2: norm("post_feedforward_layernorm_2"),
            pre_feedforward_layernorm_2: norm("pre_feedforward_layernorm_2"),
        })
    }

    /// What the feed-forward made of `residual`, with what the experts make of it; and what the layer's names hold besides until it
    /// is done. `routed` is called when the router's probabilities take the name that attention's had.
    pub fn forward(&self, fed: &Tensor, residual: &Tensor, routed: impl FnOnce()) -> (Tensor, Vec<Tensor>) {
        let first = self.post_feedforward_layernorm_1.forward(fed);
        let flat = ops::reshape(residual, &[residual.size(0) * residual.size(1), residual.size(2)]);
        let [probabilities, weights, index] = self.router.forward(&flat);
        routed();
        let mut second = self.pre_feedforward_layernorm_2.forward(&flat);
        second = self.experts.forward(&second, &index, &weights);
        second = ops::reshape(&second, residual.dims());
        second = self.post_feedforward_layernorm_2.forward(&second);
        let sum = ops::add(&first, &second);
        (sum, vec![first, flat, probabilities, weights, index, second])
    }
}
