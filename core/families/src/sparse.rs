//! Mixtures of experts: the block, and what configurations say of it.

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Experts, GatedMlp, Linear, Router, Scope, Scores};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::config::Config;

/// `MixtralSparseMoeBlock` and its relatives.
#[derive(Debug)]
pub struct SparseMoeBlock {
    gate: Router,
    experts: Experts,
    /// The expert every token goes to, and its gate (Qwen2-MoE).
    shared: Option<(GatedMlp, Linear)>,
    module: ModuleId,
}

/// What a block is made of.
#[derive(Clone, Copy, Debug)]
pub struct BlockSizes<'a> {
    /// `hidden_size`.
    pub hidden: u64,
    /// Features inside an expert.
    pub intermediate: u64,
    /// Features inside the shared expert, where there is one.
    pub shared: Option<u64>,
    /// How many experts.
    pub count: u64,
    /// How many of them a token goes to.
    pub top_k: u64,
    /// How the router makes weights.
    pub scores: Scores,
    /// Whether the experts are registered before the router (Qwen3-MoE).
    pub experts_first: bool,
    /// The activation.
    pub act: &'a str,
}

impl SparseMoeBlock {
    /// `None` for an unknown activation.
    pub fn new(scope: &Scope, sizes: &BlockSizes<'_>) -> Option<Self> {
        let BlockSizes { hidden, intermediate, count, top_k, act, .. } = *sizes;
        let gate = || Router::new(&scope.child("gate"), count, hidden, top_k, sizes.scores);
        let experts = || Experts::new(&scope.child("experts"), count, hidden, intermediate, act);
        let (gate, experts) = if sizes.experts_first {
            let experts = experts()?;
            (gate(), experts)
        } else {
            (gate(), experts()?)
        };
        let shared = match sizes.shared {
            Some(width) => {
                let expert = GatedMlp::new(&scope.child("shared_expert"), hidden, width, act, false)?;
                Some((expert, Linear::new(&scope.child("shared_expert_gate"), hidden, 1, false)))
            }
            None => None,
        };
        Some(Self { gate, experts, shared, module: scope.module() })
    }

    /// `forward`.
    pub fn forward(&self, hidden: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            let sizes = hidden.dims().to_vec();
            let flat = ops::view(hidden, &[sizes[0] * sizes[1], sizes[2]]);
            let shared = self.shared.as_ref().map(|(expert, gate)| (expert.forward(&flat), gate));
            let routing = self.gate.forward(&flat);
            let mut out = self.experts.forward(&flat, &routing.indices, &routing.scores);
            if let Some((mut shared, gate)) = shared {
                let weight = {
                    let logit = gate.forward(&flat);
                    ops::sigmoid(&logit)
                };
                shared = ops::mul(&weight, &shared);
                drop(weight);
                out = ops::add(&out, &shared);
                return ops::reshape(&out, &sizes);
            }
            ops::reshape(&out, &sizes)
        })
    }
}

/// How many experts there are.
///
/// # Errors
/// No size, or more than any published model has.
pub fn experts(config: &Config<'_>, key: &str, default: u64) -> Result<u64> {
    const MOST: u64 = 4096;
    let count = config.size(key, default)?;
    if count > MOST {
        return Err(config.error(key, format!("{count} experts are too many"), format!("give at most {MOST}")));
    }
    Ok(count)
}

/// How many of `count` experts a token goes to.
///
/// # Errors
/// More than there are.
pub fn chosen(config: &Config<'_>, default: u64, count: u64) -> Result<u64> {
    let top_k = config.size("num_experts_per_tok", default)?;
    if top_k > count {
        return Err(config.error(
            "num_experts_per_tok",
            format!("{top_k} of {count} experts"),
            "choose no more experts than there are",
        ));
    }
    Ok(top_k)
}

/// What is not estimated yet.
///
/// # Errors
/// An auxiliary loss, or noise on the router's input.
pub fn refuse(config: &Config<'_>) -> Result<()> {
    if config.flag("output_router_logits", false)? {
        return Err(config.error("output_router_logits", "the auxiliary loss is not estimated yet", "set it to false"));
    }
    if config.number("router_jitter_noise").is_some_and(|noise| noise > 0.0) {
        return Err(config.error("router_jitter_noise", "is not estimated yet", "set it to 0"));
    }
    Ok(())
}
