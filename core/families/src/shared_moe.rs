//! DeepSeek's mixture, which GLM-4.5 has as well: chosen experts, and some that every token goes to
//! (transformers `DeepseekV3MoE`, `DeepseekV2Moe`, `Glm4MoeMoE`).

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Choice, Experts, GatedMlp, GroupRouter, RouterSizes, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::config::{Config, divide};
use super::sparse;

/// The block.
#[derive(Debug)]
pub struct SharedMoe {
    experts: Experts,
    gate: GroupRouter,
    shared_experts: GatedMlp,
    module: ModuleId,
}

/// What a config class takes where a configuration does not say.
#[derive(Clone, Copy, Debug)]
pub struct MixtureDefaults {
    /// `moe_intermediate_size`.
    pub intermediate: u64,
    /// `n_routed_experts`.
    pub experts: u64,
    /// `num_experts_per_tok`.
    pub top_k: u64,
    /// `n_shared_experts`.
    pub shared: u64,
    /// `n_group`.
    pub groups: u64,
    /// `topk_group`.
    pub top_groups: u64,
    /// `first_k_dense_replace`.
    pub dense: u64,
}

/// What a configuration says of its mixtures.
#[derive(Clone, Copy, Debug)]
pub struct Mixture<'a> {
    sizes: RouterSizes,
    intermediate: u64,
    shared: u64,
    choice: Choice,
    act: &'a str,
    /// How many layers come before the first mixture.
    pub dense: u64,
}

impl<'a> Mixture<'a> {
    /// Of layers `hidden` wide.
    ///
    /// # Errors
    /// Groups that do not divide the experts, more chosen than there are, or what is not estimated yet.
    pub fn read(config: &'a Config<'_>, hidden: u64, defaults: MixtureDefaults) -> Result<Self> {
        let experts = sparse::experts(config, "n_routed_experts", defaults.experts)?;
        let top_k = sparse::chosen(config, defaults.top_k, experts)?;
        let groups = config.size("n_group", defaults.groups)?;
        let of_a_group = divide(config, ("n_routed_experts", experts), ("n_group", groups))?;
        let top_groups = config.size("topk_group", defaults.top_groups)?;
        if top_groups > groups {
            return Err(config.error(
                "topk_group",
                format!("{top_groups} of {groups} groups"),
                "choose no more groups than there are",
            ));
        }
        if of_a_group < 2 {
            return Err(config.error(
                "n_group",
                format!("{experts} experts in {groups} groups: a group is judged by its two best"),
                "make groups of at least two experts",
            ));
        }
        let intermediate = config.size("moe_intermediate_size", defaults.intermediate)?;
        let shared = intermediate.saturating_mul(config.size("n_shared_experts", defaults.shared)?);
        if shared > super::config::MAX_SIZE {
            return Err(config.error("n_shared_experts", "shared experts are too wide together", "give fewer"));
        }
        Ok(Self {
            sizes: RouterSizes { experts, hidden, top_k, groups, top_groups },
            intermediate,
            shared,
            choice: Choice::Biased { normalised: config.flag("norm_topk_prob", true)? },
            act: config.text("hidden_act", "silu")?,
            dense: config.count("first_k_dense_replace", defaults.dense)?,
        })
    }
}

impl SharedMoe {
    /// `None` for an unknown activation.
    pub fn new(scope: &Scope, mixture: &Mixture<'_>) -> Option<Self> {
        let RouterSizes { experts, hidden, .. } = mixture.sizes;
        let Mixture { intermediate, shared, act, .. } = *mixture;
        Some(Self {
            experts: Experts::new(&scope.child("experts"), experts, hidden, intermediate, act)?,
            gate: GroupRouter::new(&scope.child("gate"), mixture.sizes, mixture.choice),
            shared_experts: GatedMlp::new(&scope.child("shared_experts"), hidden, shared, act, false)?,
            module: scope.module(),
        })
    }

    /// `forward`.
    pub fn forward(&self, hidden: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            let sizes = hidden.dims();
            let routing = self.gate.forward(hidden);
            let mut out = {
                let flat = ops::view(hidden, &[sizes[0] * sizes[1], sizes[2]]);
                self.experts.forward(&flat, &routing.indices, &routing.scores)
            };
            out = ops::view(&out, sizes);
            let shared = self.shared_experts.forward(hidden);
            let sum = ops::add(&out, &shared);
            drop((shared, routing));
            sum
        })
    }
}
